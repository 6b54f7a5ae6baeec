"""Deployment of ashrafgt/k8s-gpu-hpa, which adds vectors on a GPU."""

from __future__ import annotations

CUDA_TEST = "cuda-test"
DEPLOYMENT_YAML = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: cuda-test
spec:
  replicas: 1
  selector:
    matchLabels:
      app: cuda-test
  template:
    metadata:
      labels:
        app: cuda-test
    spec:
      containers:
      - name: cuda-test
        image: cuda-vector-add:v0.1
        command: ["bash", "-c", "for (( c=1; c<=5000; c++ )); do ./vectorAdd; done"]
        resources:
          limits:
            nvidia.com/gpu: 1
"""
LOAD_COMMAND = f"kubectl exec deployment/{CUDA_TEST} -- bash -c 'while ./vectorAdd; do :; done' &"
"""Command with which an operator adds load to that of the pod itself."""
