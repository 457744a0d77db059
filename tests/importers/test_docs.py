"""docs/import.md has a place for every option and variable of the tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobctl.jobspec.importers import devices
from jobctl.jobspec.importers.launchers import deepspeed, msrun, paddle, torchrun
from jobctl.jobspec.importers.launchers.options import Table

PAGE = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")
TABLES = [paddle.TABLE, torchrun.TABLE, msrun.TABLE, deepspeed.TABLE]


def _documented(names: set[str]) -> set[str]:
    return {name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", PAGE)}


@pytest.mark.parametrize("table", TABLES, ids=[table.title for table in TABLES])
def test_every_option_and_variable_has_its_place(table: Table) -> None:
    options = {name for row in table.rows for name in row.names}
    # torchrun's variables are its options: PET_NNODES is --nnodes.
    variables = {name for name in table.variables if not name.startswith("PET_")}
    assert (options | variables) - _documented(options | variables) == set()


# What the older documents tell users to type or to set, beside what the tables above hold.
OLDER = """
--np --elastic_server --job_id --host --ips --gpus --devices --nnodes --master --server_num --worker_num --log_level --help
--no-cache-dir --validate --net --name nvidia-docker nvidia-smi run_check kubectl wget unzip run.sh recover.sh
PADDLE_ELASTIC_SERVER PADDLE_ELASTIC_FAULT_TOLERANC_LEVEL PADDLE_ELASTIC_JOB_ID PADDLE_ELASTIC_NP POD_IP
PADDLE_TRAINER_ENDPOINTS PADDLE_CURRENT_ENDPOINT PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM PADDLE_PSERVERS_IP_PORT_LIST PADDLE_PORT
PADDLE_GLOO_RENDEZVOUS PADDLE_GLOO_HTTP_ENDPOINT PADDLE_GLOO_FS_PATH PADDLE_WITH_GLOO PADDLE_HETER_TRAINER_IP_PORT_LIST
TRAINING_ROLE PADDLE_TRAINING_ROLE FLAGS_selected_gpus FLAGS_selected_xpus CUDA_VISIBLE_DEVICES XPU_VISIBLE_DEVICES
MS_ENABLE_RECOVERY MS_RECOVERY_PATH MS_WORKER_NUM MS_SCHED_HOST MS_SCHED_PORT MS_ROLE MS_WORKER MS_SCHED MS_NODE_ID DATA_PATH
EXEC_PATH pserver_endpoints trainer_endpoints current_endpoint trainer_id trainers a_sync a_sync_configs local_rank
max_num_checkpoints epoch_interval step_interval checkpoint_dir save_checkpoint_steps keep_checkpoint_max directory
withGloo cleanPodPolicy intranet replicas
"""


def test_all_that_older_documents_name_has_its_place() -> None:
    names = set(OLDER.split())
    assert names - _documented(names) == set()


def test_every_variable_of_visible_devices_has_its_place() -> None:
    assert set(devices.VISIBLE) - _documented(set(devices.VISIBLE)) == set()
