"""kubernetes-mcp-server behind the gateway, under the example policy: pods are looked up in the cluster itself.

A pod is known by its uid, so one that was deleted and made again is told from one that was never touched.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from steps import NO, YES, agent, asked, call, check, fetch, first_read, rule, step, text, until

GATEWAY = os.environ["E2E_GATEWAY"]
NAMESPACE = "staging"


class Cluster:
    """The Kubernetes API, with the certificates of the kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        parts = YAML(typ="safe").load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = parts["clusters"][0]["cluster"], parts["users"][0]["user"]
        self._url = os.environ["E2E_CLUSTER"]
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if "certificate-authority-data" in cluster:
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
            context = ssl.create_default_context(cadata=authority)
            with tempfile.NamedTemporaryFile("wb") as pair:
                pair.write(base64.b64decode(user["client-certificate-data"]))
                pair.write(b"\n" + base64.b64decode(user["client-key-data"]))
                pair.flush()
                context.load_cert_chain(pair.name)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """One request; status and JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, {"content-type": "application/json"})  # noqa: S310
        try:
            with self._opener.open(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def uids(self) -> dict[str, str]:
        """Name to uid of the pods that are there and not on their way out."""
        found = self.ask(f"/api/v1/namespaces/{NAMESPACE}/pods")[1]["items"]
        pods = [pod["metadata"] for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return {pod["name"]: pod["uid"] for pod in pods}

    async def make(self, name: str) -> str:
        """Make a pod; its uid."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "image": "nothing.invalid/nothing:1"}]},
        }

        async def made() -> Any:  # a new namespace has no service account for its first moments
            status, answer = self.ask(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
            return answer["metadata"]["uid"] if status == 201 else None

        uid: str = await until(f"the pod {name} is made", made)
        return uid


async def deleting(client: Any, cluster: Cluster) -> None:
    step("A pod is deleted after a yes, once")
    name = {"name": "tmp-web", "namespace": NAMESPACE}
    before = cluster.uids()
    question = await call(client, "pods_delete", name)
    check("tmp-web" in asked(question), "the question names the pod")
    check(cluster.uids() == before, "asking deletes nothing")
    state = question.request_state
    other = await call(
        client, "pods_delete", {**name, "name": "tmp-db"}, request_state=state, input_responses=YES
    )
    check(rule(other) == "mrtr.mismatch", "the yes is for this pod only", rule(other))
    gone = await call(client, "pods_delete", name, request_state=state, input_responses=YES)
    check(rule(gone) == "tier.L2.confirmed" and not gone.is_error, "after a yes it runs", text(gone))

    async def absent() -> bool:
        return "tmp-web" not in cluster.uids()

    await until("the pod is gone", absent)
    check(cluster.uids() == {"tmp-db": before["tmp-db"]}, "and the other one is there")

    step("The same yes does not delete the pod that took its place")
    uid = await cluster.make("tmp-web")
    again = await call(client, "pods_delete", name, request_state=state, input_responses=YES)
    check(rule(again) == "mrtr.replay", "the replay is refused", rule(again))
    silent = await call(client, "pods_delete", name, request_state=state)
    check(rule(silent) == "mrtr.replay", "with and without an answer", rule(silent))
    check(cluster.uids()["tmp-web"] == uid, "the new pod is untouched")


async def declining(client: Any, cluster: Cluster) -> None:
    step("A no leaves the pod alone, and cannot be taken back")
    before = cluster.uids()
    name = {"name": "tmp-db", "namespace": NAMESPACE}
    question = await call(client, "pods_delete", name)
    state = question.request_state
    declined = await call(client, "pods_delete", name, request_state=state, input_responses=NO)
    check(rule(declined) == "mrtr.declined", "a no ends it", rule(declined))
    late = await call(client, "pods_delete", name, request_state=state, input_responses=YES)
    check(rule(late) == "mrtr.replay", "a later yes does not revive it", rule(late))
    check(cluster.uids() == before, "every pod is untouched", cluster.uids())


async def main() -> None:
    cluster = Cluster(Path(os.environ["E2E_KUBECONFIG"]))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    check(cluster.ask("/api/v1/namespaces", space)[0] == 201, "the namespace is made")
    for name in ("tmp-web", "tmp-db"):
        await cluster.make(name)
    async with agent(f"{GATEWAY}/mcp") as client:
        step("Reads go through; what is not listed is refused")
        listed = await first_read(client, "pods_list_in_namespace", {"namespace": NAMESPACE})
        check(rule(listed) == "tier.L0.read", "a read goes through", rule(listed))
        check("tmp-web" in text(listed) and "tmp-db" in text(listed), "and names both pods", text(listed))
        unlisted = await call(client, "no_such_tool", {})
        check(rule(unlisted) == "allowlist.deny", "an unlisted tool is refused", rule(unlisted))
        check(fetch(f"{GATEWAY}/readyz") == (200, {"status": "ok"}), "the gateway is ready")
        await deleting(client, cluster)
        await declining(client, cluster)


if __name__ == "__main__":
    asyncio.run(main())
