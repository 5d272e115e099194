"""The recipes for clusters are what the clusters, and the command, understand."""

import copy
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from kubeflow_trainer_api.models.io_k8s_api_core_v1_persistent_volume_claim import (
    IoK8sApiCoreV1PersistentVolumeClaim as Claim,
)
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import (
    JobsetV1alpha2JobSet as JobSet,
)
from pydantic import ValidationError

from natgrad._cli import cli


SCALE = Path(__file__).parents[1] / "examples" / "scale"
CLAIM, JOBSET = yaml.safe_load_all((SCALE / "jobset.yaml").read_text())
JOBS = JOBSET["spec"]["replicatedJobs"][0]
JOB = JOBS["template"]["spec"]
POD = JOB["template"]["spec"]
CONTAINER = POD["containers"][0]


# Kubernetes


def test_the_network_policy_lets_in_the_pods_of_the_job_and_no_others():
    policy = yaml.safe_load((SCALE / "networkpolicy.yaml").read_text())["spec"]
    label = {"jobset.sigs.k8s.io/jobset-name": JOBSET["metadata"]["name"]}
    assert policy["podSelector"] == {"matchLabels": label}
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": label}}]}]


def mistakes(model, document):
    """What the API would refuse, with no field that it does not know."""
    try:
        model.model_validate(document, extra="forbid")
    except ValidationError as error:
        found = error.errors()
        return [one for one in found if not is_quantity(one)]
    return []


def is_quantity(found):
    """The model knows them by a class of its own; they are written as strings."""
    is_one = found.get("ctx", {}).get("class_name", "").endswith("ResourceQuantity")
    return is_one and re.fullmatch(r"\d+(\.\d+)?(m|[KMGT]i?)?", found["input"])


def keys(node, path=()):
    """Where the fields are; names of resources are none."""
    if isinstance(node, dict):
        for key, value in node.items():
            if path[-1:] not in [("requests",), ("limits",)]:
                yield (*path, key)
            yield from keys(value, (*path, key))
    if isinstance(node, list):
        for place, value in enumerate(node):
            yield from keys(value, (*path, place))


@pytest.mark.parametrize(("model", "document"), [(Claim, CLAIM), (JobSet, JOBSET)])
def test_the_manifest_is_valid_and_no_field_of_it_can_be_misspelt(model, document):
    assert not mistakes(model, document)
    for *path, key in keys(document):
        other = copy.deepcopy(document)
        node = other
        for step in path:
            node = node[step]
        node[f"{key}s"] = node.pop(key)
        assert mistakes(model, other), (*path, key)


def test_choices_are_those_of_the_definition_of_a_jobset():
    policy = JOBSET["spec"]["failurePolicy"]
    assert policy["restartStrategy"] in ("Recreate", "BlockingRecreate")
    for rule in policy["rules"]:
        assert rule["action"] in ("FailJobSet", "RestartJobSet")
        assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])


def test_the_parts_of_the_manifest_speak_of_the_same_things():
    env = {one["name"]: one.get("value") for one in CONTAINER["env"]}
    count = int(env["NATGRAD_NUM_PROCESSES"])
    assert JOBS["replicas"] == 1 and JOB["completionMode"] == "Indexed"
    assert count == JOB["completions"] == JOB["parallelism"] > 1
    first = f"$(JOBSET_NAME)-{JOBS['name']}-0-0.$(JOBSET_NAME)"
    assert env["NATGRAD_COORDINATOR"].startswith(f"{first}:")
    assert list(env).index("JOBSET_NAME") < list(env).index("NATGRAD_COORDINATOR")
    assert JOB["backoffLimit"] == 0 and POD["restartPolicy"] == "Never"
    (rule,) = JOB["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == CONTAINER["name"]
    (volume,), (mount,) = POD["volumes"], CONTAINER["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert mount["mountPath"] == CONTAINER["workingDir"]
    assert volume["persistentVolumeClaim"]["claimName"] == CLAIM["metadata"]["name"]


# Slurm


class Slurm:
    """The recipe with commands in place of Slurm's that note how they are called."""

    def __init__(self, folder, **commands):
        self.folder = folder
        commands = {name: "" for name in ("srun", "scancel", "scontrol")} | commands
        for name, body in commands.items():
            path = folder / name
            path.write_text(f'#!/bin/bash\necho "$@" >>{path}.log\n{body}\n')
            path.chmod(0o755)

    def start(self):
        path = f"{self.folder}:{os.environ['PATH']}"
        env = os.environ | {"PATH": path, "SLURM_JOB_ID": "7"}
        script = ["bash", str(SCALE / "slurm.sbatch")]
        return subprocess.Popen(script, env=env, cwd=self.folder, stdout=-3)

    def calls(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("codes", "tries", "end"),
    [
        ("0", 1, 0),
        ("137 0", 2, 0),
        ("17 134 18 0", 4, 0),
        ("137 1 0", 2, 1),
        ("2 0", 1, 2),
        ("17 17 17 17 137 0", 5, 137),
    ],
)
def test_tasks_are_tried_again_unless_it_is_of_no_use(tmp_path, codes, tries, end):
    body = f'codes=(- {codes})\nexit ${{codes[$(wc -l <"$0.log")]}}'
    slurm = Slurm(tmp_path, srun=body)
    assert slurm.start().wait(10) == end
    assert len(slurm.calls("srun")) == tries
    assert not slurm.calls("scontrol")


def running(tmp_path):
    """The recipe at work; its tasks save and leave when they are told to."""
    told = tmp_path / "told"
    wait = f"until [[ -e {told} ]]; do sleep 0.02; done"
    slurm = Slurm(
        tmp_path,
        srun=f"{wait}\nsleep 0.3\necho >{told}.saved\nexit 143",
        scancel=f"echo >{told}",
        scontrol=f'[[ -e {told}.saved ]] || echo "too soon" >>"$0.log"',
    )
    script = slurm.start()
    while not slurm.calls("srun"):
        time.sleep(0.01)
    return slurm, script, told


def test_before_the_time_is_over_tasks_save_and_the_job_queues_again(tmp_path):
    slurm, script, _ = running(tmp_path)
    script.send_signal(signal.SIGUSR1)
    assert script.wait(10) == 0
    assert slurm.calls("scancel") == ["--signal=TERM 7"]
    assert slurm.calls("scontrol") == ["requeue 7"]
    assert len(slurm.calls("srun")) == 1


def test_what_is_cancelled_does_not_come_back(tmp_path):
    slurm, script, told = running(tmp_path)
    script.send_signal(signal.SIGTERM)
    assert script.wait(10) == -signal.SIGTERM
    told.touch()
    assert not slurm.calls("scontrol")


# Both


def test_both_run_the_same_command_and_it_is_one(tmp_path):
    slurm = Slurm(tmp_path)
    assert slurm.start().wait(10) == 0
    (call,) = slurm.calls("srun")
    name, command, *arguments = CONTAINER["command"] + CONTAINER["args"]
    assert call.split()[1:] == [name, command, *arguments]
    given = cli.commands[command].make_context(command, list(arguments)).params
    assert given["is_resumed"] and given["data"] == "data/*.parquet"
