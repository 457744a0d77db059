"""The shared launcher of jobctl: one per node, in whatever image or machine the node runs.

It starts the framework's own launcher (torchrun and similar) or the processes themselves, keeps one log per
process, reports what happens, and ends everything it started in every case. It decides nothing about other nodes:
what to run is in the environment (JOBCTL_LAUNCH), who takes part and where they meet is in the control file.

    launcher.py --control run/control.json --dir node-0 [--secrets secrets.json]

    O  guard: reaps orphans, kills whatever is left when the launcher proper is gone
    ├─ E  (with etcd) keeps the node's lease there, and the job's generation; (in a cluster) agrees on them with the others
    └─ I  launcher proper: follows the control file, starts and ends processes, writes report.json
       └─ T  the framework's launcher, if there is one
          └─ S_k  guard of process k, forked where there is no T: pumps its output into workerlog.k, writes down its exit code
             └─ W_k  the user's process

Beside a generation that trains there may be the same tree below I once more, imported and waiting: its standby
(standby/). The next generation then begins in it.

Each of O, I and S_k adopts orphans below it (PR_SET_CHILD_SUBREAPER), each of T, S_k and W_k dies with its parent
(PR_SET_PDEATHSIG), S_k only after it has ended what is below it, O and I watch each other. So no SIGKILL of any of
them leaves a process behind, unless it hits S_k and all above it at once.

Standard library only, Python 3.8 or later, Linux. Each file imports only from those before it (render/launcher.py has
their order), which joins them into the one launcher.py that hosts get.
"""
