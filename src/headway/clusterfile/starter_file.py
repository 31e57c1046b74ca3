"""The commented file that `headway init` writes."""

from __future__ import annotations

from headway.catalog.node_images import DEFAULT_IMAGE, images_in_words
from headway.errors import Fault, InvalidSpec
from headway.validation import syntax_rules

_TEXT = """\
# A Slurm cluster for AI training. `headway plan FILE` shows the changes, `headway apply FILE` carries them out.
# Only name, plan and nodes are required; the other fields show defaults or examples.
# Further fields: groups that scale, a second head, volumes, backups, secrets, prices, health. All fields: headway schema

name: {name}
provider: local          # containers on this machine, with SIMULATED GPUs; or ssh: your own machines, listed under hosts
image: {image}          # {images}

plan: h100-8             # hardware of a node: h100-8, h200-8, a100-8, l40s-4, b200-8, cpu-64, or a plan of your own catalogue
nodes: 4                 # nodes for jobs, without the head
spares: 1                # ready nodes that replace failed ones

fabric:
  leaf_size: 4           # nodes under one leaf switch; a job uses as few leaf switches as possible

# Your public keys, for plain ssh. (headway's commands need none.)
# ssh_keys: [~/.ssh/id_ed25519.pub]

storage:
  home: {{}}               # /home, the same on every machine
  scratch: {{}}            # /scratch, for checkpoints
  # datasets:
  #   - {{name: tiny, path: ./data/tiny, mount: /datasets/tiny}}   # read_only: false makes it writable

partitions:
  train:
    default: true
    max_time: "7-00:00:00"       # days-hours:minutes:seconds
    default_time: "1-00:00:00"   # for jobs without --time
  debug:
    nodes: 1                     # the first node only
    max_time: "02:00:00"
  # `urgent` requeues jobs of train and debug.
  # urgent: {{preempts: [train, debug], teams: [vision], default_time: "1-00:00:00"}}

# Without teams there is one, "default", with you in it. A team is a Slurm account with a share and limits.
# teams:
#   vision:
#     users: [alice, bob]
#     share: 60
#     limits: {{gpu_hours: {{hours: 720, per: month}}, running_jobs: 50, gpus: 16}}
#   speech: {{users: [carol], share: 40}}
# users:
#   alice: {{ssh_keys: [./keys/alice.pub]}}
# departures: {{jobs: cancel}}     # running jobs of a removed user: cancel or finish

# mail: {{relay: "mail.example.org:25"}}   # mail server for --mail-type
# alerts: {{webhook: "https://example.org/alerts", chat: "https://chat.example.org/hooks/...", mail: oncall@example.org}}
# slurm: {{PriorityWeightAge: 2000}}       # more slurm.conf keys; the schema lists them
"""


def starting_file(name: str) -> str:
    """Returns a commented cluster file that is valid without changes. Raises InvalidSpec for an invalid cluster name."""
    problem = syntax_rules.cluster_name_fault(name)
    if problem:
        raise InvalidSpec([Fault("name", problem)])
    return _TEXT.format(name=name, image=DEFAULT_IMAGE, images=images_in_words())
