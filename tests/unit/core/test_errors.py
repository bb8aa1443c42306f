from __future__ import annotations

from airlock.core.errors import (
    AirlockError,
    ConfigError,
    Fault,
    IntegrityError,
    ProtocolError,
    StoreUnavailable,
    UpstreamError,
    UpstreamFailure,
)


def test_one_fault_is_one_line_and_several_are_counted():
    assert str(ConfigError("p.yaml", "not a mapping")) == "p.yaml: not a mapping"
    assert str(ConfigError("", "bad")) == "bad"
    faults = [Fault("tools.x", "unknown key", "remove it"), Fault("", "no environment")]
    assert (
        str(ConfigError("p.yaml", faults))
        == "p.yaml: 2 faults: tools.x: unknown key (remove it); no environment"
    )


def test_faults_are_values():
    assert Fault("a", "b") == Fault("a", "b")
    assert Fault("a", "b") != Fault("a", "b", "c")
    assert Fault("a", "b") != "a: b"
    assert len({Fault("a", "b"), Fault("a", "b")}) == 1
    assert repr(Fault("a", "b")) == "Fault('a', 'b', '')"


def test_each_party_at_fault_has_an_error_of_its_own_with_what_a_handler_needs():
    upstream = UpstreamError(UpstreamFailure.BAD_REPLY, "not JSON", reached=True, status=200)
    assert (upstream.kind, upstream.cause, upstream.reached, upstream.status) == (
        "upstream.bad_reply",
        "not JSON",
        True,
        200,
    )
    assert str(upstream) == "upstream.bad_reply: not JSON"
    protocol = ProtocolError(-32602, "no name")
    assert (protocol.code, protocol.problem, str(protocol)) == (-32602, "no name", "-32602: no name")
    integrity = IntegrityError("log:3", "hash mismatch")
    assert (integrity.where, integrity.problem, str(integrity)) == (
        "log:3",
        "hash mismatch",
        "log:3: hash mismatch",
    )
    for error in (upstream, protocol, integrity, StoreUnavailable("x"), ConfigError("", "x")):
        assert isinstance(error, AirlockError)
