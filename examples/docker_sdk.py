# SPDX-License-Identifier: Apache-2.0
"""In the place of docker-py: a function for a model that answers {"success", "output"} or {"success", "error"}.

Where a class made a container, waited, read logs and removed it, one call is left. Limits are arguments of it; a time-out,
a lack of memory and a failed program are told apart. (The call that is often written, containers.run(image, command, timeout=30),
cannot work: docker-py has no such argument there and raises a TypeError.)

    PYTHONPATH=python python3 docker_sdk.py 'print(2 + 2)'
"""
import json
import sys

import cloche


def execute_python(code, timeout="30s", memory="256m"):
    r = cloche.run_python(code, timeout=timeout, memory=memory)
    if r.ok:
        return {"success": True, "output": r.stdout.strip() or "(no output)"}
    return {"success": False, "error": f"{r.model_message}\n{r.stderr}".strip()}


print(json.dumps(execute_python(sys.argv[1])))
