"""Headway's agent. On a node it receives the reports of trainings, follows the kernel's log, checks GPUs and machine,
and serves metrics to Prometheus. On the head it stores the nodes' messages where the server reads them.

Not here: decisions that span machines (`health.policy`), changes of a machine (`node/ops`).

    training --datagram--> /run/headway/report/socket --> agent of the node --UDP, sealed by MUNGE--> agent of the head
             --> /var/lib/headway/reports/JOB.jsonl --> the server, with the logs that it reads over SSH anyway

- Sender: with each datagram the kernel names the sending process. The agent takes the job from that process's cgroup,
  which only Slurm creates. A report does not name its job, so a process can't report for another job. This also works inside a
  container into which the folder of the socket is mounted (the folder, because the socket is a new file after each restart).
- Volume: the newest report of a job counts. A node sends the reports that changed every FLUSH_S, once more in case the first
  datagram got lost, and nothing while nothing changes. Only rank 0 reports, so a cluster sends about one datagram for each
  running training and flush, however many nodes the job has; the server opens no connection to any node.
- Failure: nothing waits for the agent. While it is away, reports are lost and nothing else. An agent that is killed loses what
  came in during the last FLUSH_S; what the head has is on disk. Nothing needs repair.
- Trust: the machines of a cluster already share MUNGE's key. The head accepts what root on one of them sealed, once.


    kernel's log --> agent of the node --with its heartbeat each second, until the head has acknowledged it-->
             agent of the head --> /var/lib/headway/faults.jsonl, beats.json --> `watch`, which the server keeps open

- A line of the kernel's log has the same id however often it is read and sent. A restarted agent reads the log from its
  beginning, and the head and the server skip what they already have. So nothing is lost and nothing is recorded twice.

    prolog of a job --TCP, sealed by MUNGE--> agent of the head, which reads /var/lib/headway/job-secrets.json
             --encrypted for root--> `secrets`, which writes the job's files

    agent.pyz node [CONFIG]      agent.pyz head [CONFIG]      agent.pyz watch      agent.pyz test NAME
    agent.pyz secrets FOLDER FAILURE

On the machine the agent is one file (a zip archive that Python runs), made of these modules. It needs Python 3.10 or
newer, the standard library, and libmunge, which Slurm's own plugins need too."""
