"""Properties: arguments arrive unchanged, whatever is found is valid, secrets stay where they are, nothing crashes."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from jobctl.jobspec.importers.draft import Found, ImportProblem
from jobctl.jobspec.importers.jobs import ImportContext, import_command, import_text, references
from jobctl.jobspec.importers.names import fitted, is_secret, job_name
from jobctl.jobspec.importers.notes import concealed, to_check
from jobctl.jobspec.importers.write import hosts_text, scalar, spec_text
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import Loaded, load_text
from tests.tools.examples import examples

CONTEXT = ImportContext("/somewhere/resnet", "resnet", {"run.sh": "export A=1\ntorchrun x.py\n"}.get)
QUICK = examples(100)

# Any text that a process can receive.
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40)
# Text that YAML, the spec or a shell may take for something else.
tricky = st.sampled_from(
    ["", "-", "--", "- a", "a: b", "a:", "#", " #", "yes", "no", "null", "~", "1", "1.10", "0755", "0o7", "1e3", "22:22", "<<", "="]
    + ["2020-01-01", "${X}", "$$", "$", "${X:-", "{a", "[", "*a", "&a", "!x", "|", ">", "@", "`", "%", "'", '"', "\\", "\n", "\t"]
    + ["\x7f", "\x85", "\u2028", "\ufeff", "\U0001f600", "a\nb", " a ", "a, b", "]", "}", "?", "? a", ".inf", "+1", "_"]
)  # fmt: skip
arguments = st.lists(st.one_of(texts, tricky), max_size=5)

LAUNCHERS = (
    ["torchrun", "--nproc-per-node=2", "train.py"],
    ["python", "-m", "paddle.distributed.launch", "train.py"],
    ["msrun", "--worker_num=2", "train.py"],
    ["deepspeed", "train.py"],
    ["docker", "run", "--rm", "pytorch:1", "torchrun", "train.py"],
)


def loaded(job: Found) -> Loaded:
    environ = dict.fromkeys(references(job.fields), "x")
    return load_text(Path("/none/job.yaml"), spec_text(job, "a command"), environ=environ)


@QUICK
@given(st.sampled_from(LAUNCHERS), arguments)
def test_arguments_of_a_script_arrive_unchanged(launcher: list[str], args: list[str]) -> None:
    read = loaded(import_command([*launcher, *args], CONTEXT))
    assert read.spec is not None, read.diagnostics
    assert read.spec.args == tuple(args)


@QUICK
@given(arguments)
@example(["a\nb"])
def test_arguments_in_a_script_arrive_unchanged(args: list[str]) -> None:
    args = [arg.replace("\r", "") for arg in args]
    line = shlex.join(["torchrun", "train.py", *args])
    read = loaded(import_text(f"true\n{line}\n", CONTEXT))
    assert read.spec is not None, read.diagnostics
    assert read.spec.args == tuple(args)


@QUICK
@given(st.dictionaries(st.from_regex(r"X[A-Z_]{0,6}", fullmatch=True), st.one_of(texts, tricky), max_size=4))
def test_variables_arrive_unchanged(env: dict[str, str]) -> None:
    words = [f"{name}={value}" for name, value in env.items()]
    read = loaded(import_command([*words, "torchrun", "train.py"], CONTEXT))
    assert read.spec is not None, read.diagnostics
    kept = {name: value for name, value in env.items() if not is_secret(name, value)}
    assert read.spec.env == kept


@QUICK
@given(st.one_of(texts, tricky))
def test_scalars_are_read_back_by_others_too(text: str) -> None:
    document = f"a: {scalar(text)}   # x\nb: [{scalar(text)}, {scalar(text)}]\nc: {{k: {scalar(text)}}}\n"
    assert yaml.safe_load(document) == {"a": text, "b": [text, text], "c": {"k": text}}


@QUICK
@given(texts)
def test_names_fit(text: str) -> None:
    name = job_name(text, "fallback")
    read = loaded(import_command(["torchrun", "train.py"], ImportContext("/x", text, {}.get)))
    assert read.spec is not None, read.diagnostics
    assert fitted(name) == name


# Pieces of commands and scripts, put together at random.
PIECES = [
    *(
        "torchrun",
        "python -m paddle.distributed.launch",
        "fleetrun",
        "msrun",
        "deepspeed",
        "docker run",
        "img",
        "ssh h",
    ),
    *(
        "bash -c",
        "mpirun -np 2",
        "train.py",
        "--nnodes",
        "--gpus=0,1",
        "--nproc_per_node=",
        "2",
        "2:4",
        "$X",
        "${X:-1}",
    ),
    *("${X", "$(", "`", "'", '"', "\\", "\n", ";", "&", "&&", "|", "for i in", "((", "))", "do", "done", "if", "then"),
    *("fi", "else", "case", "esac", "{", "}", "(", ")", "f()", "<<EOF", "EOF", "> x", "2>&1", "A=", "export", "i++"),
    *("MS_ROLE=MS_WORKER", "TRAINING_ROLE=PSERVER", "PADDLE_TRAINERS_NUM=", "POD_IP=", "--master", "etcd://h:1"),
    *(
        "--ips=a,b",
        "-v a:/b",
        "-e T",
        "run.sh",
        "bash",
        "[[",
        "]]",
        "$((",
        "{0..3}",
        "${A[@]}",
        "$(seq 3)",
        "--np",
        "=",
    ),
    *("# c", "é", "\t", '"$@"', "while", "function", "source", "eval", "cd", "$1", "-o", "--rdzv_id=", "--servers=h:1"),
    *(
        "--run_mode=ps",
        "JAX_NUM_PROCESSES=4",
        "JAX_COORDINATOR_ADDRESS=a:1",
        "--server_num=1",
        "sudo",
        "env",
        "--hostfile=f",
        "--include=a:0@b",
        "--shm-size=",
        "--ulimit a=1",
    ),
]
# Rules that no import can repair: the command line refuses such jobs, with the rule's own words.
RULES = {"collective-only-device", "mindspore-device", "jax-device", "too-many-trainers", "hidden-mount", "bad-value"}


def _holds(job: Found) -> None:
    wrong = [d for d in loaded(job).diagnostics if d.severity == "error" and d.code not in RULES]
    assert wrong == []
    hosts = hosts_text(job, "a command")
    assert not hosts or parse_hosts(hosts, "hosts.txt").diagnostics == ()


@examples(200)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join))
def test_no_script_crashes_the_import(text: str) -> None:
    with suppress(ImportProblem):
        _holds(import_text(text, CONTEXT))


@examples(200)
@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_no_command_crashes_the_import(argv: list[str]) -> None:
    with suppress(ImportProblem):
        _holds(import_command(argv, CONTEXT))


@pytest.mark.parametrize(
    "argv",
    [
        ["WANDB_API_KEY=s3cr3t", "torchrun", "train.py"],
        ["docker", "run", "-e", "HF_TOKEN=s3cr3t", "-e", "DB_PASSWORD=s3cr3t", "img", "torchrun", "train.py"],
        ["mpirun", "-x", "MY_SECRET=s3cr3t", "torchrun", "train.py"],
        ["http_proxy=http://me:s3cr3t@proxy", "fleetrun", "train.py"],
        ["bash", "-c", "wandb login s3cr3t; export AWS_SECRET_ACCESS_KEY=s3cr3t; torchrun --nnodes=$AWS_SECRET_ACCESS_KEY a.py"],
        ["bash", "-c", "export TOKEN=s3cr3t; curl -H \"X: $TOKEN\" http://x; docker login -p s3cr3t; torchrun a.py; torchrun b.py"],
        ["bash", "-c", "if x; then API_KEY=s3cr3t; fi; export API_KEY; Y=$API_KEY torchrun a.py $API_KEY"],
        ["bash", "-c", "export TOKEN=$(curl -H 'Authorization: Bearer s3cr3t' http://x); torchrun a.py"],
        ["bash", "-c", "export TOKEN=$(curl http://me:s3cr3t@x); torchrun a.py"],
        ["docker", "run", "--label", "api_token=s3cr3t", "-l", "team.key=s3cr3t", "img", "torchrun", "train.py"],
        ["srun", "--comment=a=b,password=s3cr3t", "--export=ALL,MY_KEY=s3cr3t", "torchrun", "train.py"],
        ["torchrun", "--rdzv-conf", "a=1,auth_key=s3cr3t", "--run-path=http://me:s3cr3t@h", "train.py"],
    ],
)  # fmt: skip
def test_secrets_are_not_written_down(argv: list[str]) -> None:
    job = import_command(argv, CONTEXT)
    assert "s3cr3t" not in spec_text(job, "a command") + hosts_text(job, "a command")
    assert loaded(job).spec is not None


BATCH = """\
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:8
#SBATCH --comment="my password: s3cr3t"
#SBATCH --export=ALL,HF_TOKEN=s3cr3t,LR=$1,HOST
srun torchrun train.py
"""


def test_variables_of_a_batch_script_s_export_are_those_of_the_job() -> None:
    """As those of `srun --export`: a secret without its value."""
    job = import_text(BATCH, CONTEXT)
    assert (job.fields["env"], job.fields["secrets"]) == ({"LR": "$$1"}, ("HF_TOKEN",))
    assert "s3cr3t" not in spec_text(job, "run.sbatch")
    assert loaded(job).spec is not None


MANIFEST = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: a}
spec:
  pytorchReplicaSpecs:
    Master:
      template:
        spec:
          containers:
            - name: pytorch
              image: img
              command: [torchrun, train.py]
              env:
                - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
                - {name: DB_PASSWORD, value: "my s3cr3t $(POD_UID)"}
                - {name: PLACE, value: "$(POD_UID)"}
"""


def test_a_variable_that_kubernetes_fills_in_is_noted_without_its_secret() -> None:
    notes = import_text(MANIFEST, CONTEXT).notes
    assert [note for note in notes if "DB_PASSWORD" in note or "PLACE" in note] == [
        "not carried over: DB_PASSWORD=… (what Kubernetes fills in is not known here)",
        "not carried over: PLACE=$(POD_UID) (what Kubernetes fills in is not known here)",
    ]
    assert not any("s3cr3t" in note for note in notes)


@pytest.mark.parametrize(
    ("written", "note"),
    [
        ("line 3: #SBATCH --export=ALL,HF_TOKEN=hf_1,B=2", "line 3: #SBATCH --export=ALL,HF_TOKEN=…"),
        ("--label a=1", "--label a=1"),
        ("--db-password abc def", "--db-password …"),
        ("--header=Authorization: Bearer abc", "--header=…"),
        ("team.example.com/api-token=abc", "team.example.com/api-token=…"),
        ("git clone https://me:p@ss@host/a.git", "git clone https://…@host/a.git"),
        ("SSH_AUTH_SOCK=/s KEY=", "SSH_AUTH_SOCK=/s KEY="),
    ],
)
def test_notes_conceal_values_that_look_secret(written: str, note: str) -> None:
    assert concealed(written) == note


def test_what_to_look_at_is_said_without_values_that_look_secret() -> None:
    said = to_check("`A_KEY=s3cr3t` and http://me:s3cr3t@h:1 come from $$HOME: put them in")
    assert said == "check: `A_KEY=…` and http://…@h:1 come from $HOME: put them in"
