"""Job files of all formats that `headway convert` reads. Each runs to its end on the cluster of tests/cluster/lab.yaml, with
a container image where the format needs one."""

from __future__ import annotations

from collections.abc import Mapping

from headway.convert.formats import Source

PBS = """\
#!/bin/bash
#PBS -N heat
#PBS -l select=2:ncpus=4:mpiprocs=2:ngpus=1:mem=200mb
#PBS -l walltime=00:05:00
#PBS -A vision
#PBS -j oe
#PBS -o heat.log
#PBS -v STEPS=3
#PBS -W depend=afterok:1234.head
cd $PBS_O_WORKDIR
test "$(wc -l <$PBS_NODEFILE)" -eq 4
test "$STEPS" -eq 3
srun test -n "${SLURM_PROCID}"
echo "job $PBS_JOBID is over"
"""
LSF = """\
#!/bin/bash
#BSUB -J sweep[1-2]%1
#BSUB -n 4
#BSUB -R "span[ptile=2] rusage[mem=200MB]"
#BSUB -W 0:05
#BSUB -gpu "num=1:mode=exclusive_process"
#BSUB -o sweep.%J.%I
test "$LSB_JOBINDEX" -ge 1 && test "$(echo $LSB_HOSTS | wc -w)" -eq 2
srun true
"""
SGE = """\
#!/bin/bash
#$ -N blast
#$ -cwd
#$ -pe smp 2
#$ -l h_vmem=100M,h_rt=00:05:00
#$ -t 1-3:2
#$ -tc 2
#$ -j y
#$ -o blast.$JOB_ID.$TASK_ID.log
test "$NSLOTS" -eq 2
test "$SGE_TASK_ID" -ne 2
"""
SLURM = """\
#!/bin/bash
#SBATCH --job-name=Train_1
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=64G
#SBATCH --time=01:00:00
#SBATCH --partition=train
#SBATCH --requeue
#SBATCH --container-image="nvcr.io#nvidia/pytorch:25.05-py3"
#SBATCH --container-mounts=/datasets/tiny:/data:ro
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes="$SLURM_NNODES" --node-rank="$SLURM_NODEID" --nproc-per-node=8 train.py
"""
KUBERNETES = """\
apiVersion: batch/v1
kind: Job
metadata: {name: shards, namespace: ml}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  activeDeadlineSeconds: 300
  backoffLimit: 4
  template:
    spec:
      restartPolicy: Never
      tolerations: [{operator: Exists}]
      containers:
        - name: main
          image: example.org/team/embed:1
          command: [bash, -c, 'test "$PART" = "part 1" && test "$JOB_COMPLETION_INDEX" -lt 3 && test -w /work']
          env:
            - {name: PART, value: part 1}
            - {name: HF_TOKEN, value: hf_abcdefgh}
          resources:
            limits: {nvidia.com/gpu: 1, memory: 200Mi}
            requests: {cpu: 500m}
          volumeMounts: [{name: work, mountPath: /work}]
      volumes: [{name: work, emptyDir: {}}]
"""
JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: pair}
spec:
  failurePolicy: {maxRestarts: 3}
  replicatedJobs:
    - name: leader
      template:
        spec:
          template:
            spec:
              containers:
                - {name: main, image: example.org/a:1, command: [bash, -c, 'test "$JOB_COMPLETION_INDEX" -eq 0']}
    - name: worker
      replicas: 1
      template:
        spec:
          parallelism: 2
          completions: 2
          template:
            spec:
              containers:
                - {name: main, image: example.org/a:1, command: [bash, -c, 'test "$JOB_COMPLETION_INDEX" -lt 2']}
"""
PYTORCHJOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: ddp}
spec:
  nprocPerNode: "2"
  runPolicy: {activeDeadlineSeconds: 300, cleanPodPolicy: None}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: example.org/ddp:1
              command: [bash, -c, 'test "$WORLD_SIZE" -eq 2 && test -n "$MASTER_ADDR" && test "$RANK" -lt 2']
              resources: {limits: {nvidia.com/gpu: 2}}
    Worker:
      replicas: 1
      template:
        spec:
          containers:
            - name: pytorch
              image: example.org/ddp:1
              command: [bash, -c, 'test "$WORLD_SIZE" -eq 2 && test -n "$MASTER_ADDR" && test "$RANK" -lt 2']
              resources: {limits: {nvidia.com/gpu: 2}}
"""
MPIJOB = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 2
  runPolicy: {activeDeadlineSeconds: 300}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: launcher
              image: example.org/pi:1
              command: [mpirun, -n, "4", --allow-run-as-root, -bind-to, none, test, -n, "$(HOME)"]
              env: [{name: STEPS, value: "10"}]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - {name: worker, image: example.org/pi:1, resources: {limits: {cpu: 2, memory: 200Mi}}}
"""
RAYJOB = """\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: tune}
spec:
  entrypoint: test "$TRIALS" -eq 4 && ray status
  shutdownAfterJobFinishes: true
  activeDeadlineSeconds: 300
  runtimeEnvYAML: |
    env_vars: {TRIALS: "4"}
    pip: [torch]
  rayClusterSpec:
    rayVersion: 2.52.0
    headGroupSpec:
      rayStartParams: {dashboard-host: 0.0.0.0}
      template:
        spec:
          containers:
            - {name: ray-head, image: "rayproject/ray:2.52.0", resources: {limits: {cpu: "1"}}}
    workerGroupSpecs:
      - groupName: gpus
        replicas: 2
        minReplicas: 1
        maxReplicas: 4
        rayStartParams: {}
        template:
          spec:
            containers:
              - {name: ray-worker, image: "rayproject/ray:2.52.0", resources: {limits: {nvidia.com/gpu: 1}}}
"""
SKYPILOT = """\
name: finetune
resources: {accelerators: "H100:2", cpus: 2+, memory: 1+, use_spot: true}
num_nodes: 2
workdir: .
envs:
  MODEL: tiny model
  HF_TOKEN: hf_abcdefgh
setup: |
  test -n "$MODEL"
run: |
  test "$(echo "$SKYPILOT_NODE_IPS" | wc -l)" -eq "$SKYPILOT_NUM_NODES"
  test "$SKYPILOT_NODE_RANK" -lt 2 && test "$SKYPILOT_NUM_GPUS_PER_NODE" -eq 2
"""
DSTACK = """\
type: task
name: sft
nodes: 2
python: "3.12"
env:
  - MODEL=tiny
  - HF_TOKEN
commands:
  - test "$MODEL" = tiny
  - test "$DSTACK_NODES_NUM" -eq 2 && test "$DSTACK_NODE_RANK" -lt 2 && test -n "$DSTACK_MASTER_NODE_IP"
resources: {gpu: "24GB..:1", cpu: 2.., memory: 1GB..4GB, shm_size: 1GB}
max_duration: 5m
ports: [8000]
"""
SAGEMAKER = """\
{
  "TrainingJobName": "bert-1",
  "AlgorithmSpecification": {
    "TrainingImage": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1",
    "TrainingInputMode": "File",
    "ContainerEntrypoint": ["bash", "-c", "test \\"$MODE\\" = \\"fast lane\\" && test \\"$SM_NUM_GPUS\\" -eq 4"]
  },
  "HyperParameters": {},
  "Environment": {"MODE": "fast lane"},
  "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": {"S3Uri": "s3://bucket/train"}}}],
  "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
  "ResourceConfig": {"InstanceType": "ml.g5.12xlarge", "InstanceCount": 2, "VolumeSizeInGB": 50},
  "StoppingCondition": {"MaxRuntimeInSeconds": 300},
  "RoleArn": "arn:aws:iam::123456789012:role/train"
}
"""
JOB_FILES: Mapping[Source, str] = {
    Source.PBS: PBS, Source.LSF: LSF, Source.SGE: SGE, Source.SLURM: SLURM, Source.KUBERNETES: KUBERNETES,
    Source.JOBSET: JOBSET, Source.PYTORCHJOB: PYTORCHJOB, Source.MPIJOB: MPIJOB, Source.RAYJOB: RAYJOB,
    Source.SKYPILOT: SKYPILOT, Source.DSTACK: DSTACK, Source.SAGEMAKER: SAGEMAKER,
}  # fmt: skip
