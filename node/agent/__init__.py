"""Headway's agent. On a node it takes trainings' reports, follows the kernel's log, looks after GPUs and machine, and
answers Prometheus; on the head it keeps what nodes say where the server reads it.

    training --datagram--> /run/headway/report/socket --> agent of the node --UDP, sealed by MUNGE--> agent of the head
             --> /var/lib/headway/reports/JOB.jsonl --> the server, along with the logs it reads over SSH anyway

- Who speaks: the kernel names the sender's process with each datagram, and its cgroup, which only Slurm makes, the job. A
  report says nothing about the job it is for, so nobody can report for another's. It works from inside a container as
  well, where the folder of the socket is bound in (the folder, not the socket: that is a new one after a restart).
- How much: the newest report of a job counts. A node sends those that changed every FLUSH_S, once more in case the first
  got lost, and nothing while nothing changes. Only ranks 0 report, so a cluster sends about one datagram for each running
  training and flush, however many nodes it has; the server opens no connection to any node.
- Nothing waits for it: a training whose agent is away loses reports, nothing else. An agent that is killed has lost what
  came in the last FLUSH_S; what the head has is on disk. There is nothing to repair.
- MUNGE is the trust that the machines of a cluster already share: the head takes what root on one of them sealed, once.


    kernel's log --> agent of the node --with its heartbeat each second, until the head has said that it has it-->
             agent of the head --> /var/lib/headway/faults.jsonl, beats.json --> `watch`, which the server holds open

- A line of the kernel's log has the same name however often it is read and sent: an agent that was started again reads
  the log from its beginning, the head and the server pass over what they have. So nothing is lost and nothing comes twice.

    agent.pyz node [CONFIG]      agent.pyz head [CONFIG]      agent.pyz watch      agent.pyz test NAME

One file on the machine (a zip that Python runs), made of these modules. Only the standard library, and libmunge, which
Slurm's own plugins need. Python 3.10 or newer.
"""
