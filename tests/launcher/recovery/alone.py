"""What launchers are told that recover by themselves, and what their ranks run."""

TRAIN = "import os, time; open(os.environ['JOBCTL_PROGRESS_FILE'], 'w').write('1'); time.sleep(600)"
BASE = {"number": 1, "id": "demo-1"}
ALONE = {"restarts": 9, "rules": [], "ports": [20000, 29999], "failures": [], "base": BASE}
