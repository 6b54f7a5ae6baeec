"""Objects around an adapter in a real cluster: Prometheus, simulated GPUs, a Deployment, its HPA.

All of them live in one namespace, apart from the right to read the kubelets' metrics. Containers
run two images only: that of the adapter, which has Python and the recorded GPU, and Prometheus.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from adapter.cli.demo import fleet
from tools.documents import Document, new, workload
from tools.playground import manifests
from tools.workload import exporter

APP = manifests.BERT
EXPORTER = "dcgm-exporter"
PROMETHEUS = "prometheus"
PROMETHEUS_IMAGE = "docker.io/prom/prometheus:v3.16.0"
PROMETHEUS_PORT = 9090
LOAD = exporter.LOAD
"""Annotation of the Deployment APP: its load in per cent of one GPU."""

_PYTHON = "/opt/gpu-metrics-adapter/bin/python"
_RUN_SCRIPT = (
    "import runpy, sys, gpu_metrics_adapter\n"
    "sys.path[:0] = gpu_metrics_adapter.__path__\n"
    "import adapter.cli\n"
    "adapter.cli.__path__.append('/scripts')\n"
    "runpy.run_path('/scripts/exporter.py', run_name='__main__')"
)
"""The image lacks the package adapter.cli.demo, which has the recording and the exporters."""
_DEMO = Path(fleet.__file__).parent
_WAIT = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"
_ANNOTATION = "__meta_kubernetes_pod_annotation_prometheus_io"
_POD: Document = {"enableServiceLinks": False}
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def url(namespace: str) -> str:
    """Return the URL of Prometheus, without its port, as the chart's value `prometheus.url`."""
    return f"http://{PROMETHEUS}.{namespace}.svc"


def prometheus(namespace: str, *, image: str = PROMETHEUS_IMAGE) -> list[Document]:
    """Return a Prometheus that discovers the exporter and the kubelets, and scrapes often."""
    container = {
        "name": PROMETHEUS,
        "image": image,
        "args": [
            "--config.file=/etc/prometheus/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
        ],
        "ports": [{"name": "http", "containerPort": PROMETHEUS_PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/-/ready", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 30,
        },
        "resources": _requests(300),
        "securityContext": _RESTRICTED,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/prometheus"},
            {"name": "data", "mountPath": "/prometheus"},
        ],
    }
    pod = {
        **_POD,
        "serviceAccountName": PROMETHEUS,
        "securityContext": {"fsGroup": 65532},
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": PROMETHEUS}},
            {"name": "data", "emptyDir": {}},
        ],
    }
    config = {"prometheus.yml": yaml.safe_dump(_scrape_config(namespace), sort_keys=False)}
    port = {"name": "http", "port": PROMETHEUS_PORT, "targetPort": "http"}
    service = {"selector": {"app": PROMETHEUS}, "ports": [port]}
    read = {"apiGroups": [""], "verbs": ["get", "list", "watch"]}
    pods, nodes = read | {"resources": ["pods"]}, read | {"resources": ["nodes", "nodes/proxy"]}
    cluster_name = f"{namespace}-{PROMETHEUS}"
    return [
        new("v1", "ServiceAccount", PROMETHEUS, namespace),
        *_rights("ClusterRole", cluster_name, namespace, [pods, nodes], account=PROMETHEUS),
        new("v1", "ConfigMap", PROMETHEUS, namespace, data=config),
        workload("Deployment", PROMETHEUS, pod, namespace, replicas=1),
        new("v1", "Service", PROMETHEUS, namespace, spec=service),
    ]


def gpus(namespace: str, *, image: str) -> list[Document]:
    """Return the exporter of each node, which reads the pods of APP."""
    fields = {"NODE_NAME": "spec.nodeName", "POD_NAMESPACE": "metadata.namespace"}
    container = {
        "name": EXPORTER,
        "image": image,
        "command": [_PYTHON, "-c", _RUN_SCRIPT],
        "env": [
            {"name": "APP", "value": APP},
            *(
                {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                for name, path in fields.items()
            ),
        ],
        "ports": [{"name": "metrics", "containerPort": exporter.PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/node/metrics", "port": "metrics"},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
        "resources": _requests(200),
        "securityContext": _RESTRICTED,
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
    }
    pod = {
        **_POD,
        "serviceAccountName": EXPORTER,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    files = {Path(exporter.__file__).name: Path(exporter.__file__)}
    files |= {f"demo/{each.name}": each for each in _DEMO.iterdir() if each.is_file()}
    # A key of a ConfigMap has no slash.
    keys = {name: name.replace("/", ".") for name in files}
    texts = {keys[name]: path.read_text() for name, path in files.items()}
    items = [{"key": key, "path": name} for name, key in keys.items()]
    pod["volumes"] = [{"name": "scripts", "configMap": {"name": EXPORTER, "items": items}}]
    rights = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
    ]
    daemon_set = workload("DaemonSet", EXPORTER, pod, namespace)
    # The label of its chart, by which the Prometheus in the adapter's pod discovers it.
    daemon_set["spec"]["template"]["metadata"]["labels"] |= {"app.kubernetes.io/name": EXPORTER}
    return [
        new("v1", "ServiceAccount", EXPORTER, namespace),
        *_rights("Role", EXPORTER, namespace, rights),
        new("v1", "ConfigMap", EXPORTER, namespace, data=texts),
        daemon_set,
    ]


def app(namespace: str, *, image: str, load: float) -> list[Document]:
    """Return the Deployment APP with a load, and its HPA, whose target is 20 % of a GPU."""
    container = idle("server", image=image)
    pod = {**_POD, "terminationGracePeriodSeconds": 5, "containers": [container]}
    deployment = workload("Deployment", APP, pod, namespace)
    deployment["metadata"]["annotations"] = {LOAD: f"{load:g}"}
    hpa: Document = yaml.safe_load(manifests.hpa(server=False))
    hpa["metadata"]["namespace"] = namespace
    return [deployment, hpa]


def idle(name: str, *, image: str) -> Document:
    """Return a container that waits for SIGTERM."""
    return {
        "name": name,
        "image": image,
        "command": [_PYTHON, "-c", _WAIT],
        "resources": _requests(10),
        "securityContext": _RESTRICTED,
    }


def _scrape_config(namespace: str) -> Document:
    pods = {"role": "pod", "namespaces": {"names": [namespace]}}
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    # As the Prometheus operator labels the targets of a PodMonitor.
    labels = [
        {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": label}
        for source, label in (
            ("namespace", "namespace"),
            ("pod_name", "pod"),
            ("pod_container_name", "container"),
            ("pod_node_name", "node"),
        )
    ]
    of_pod = [
        {
            "source_labels": ["__meta_kubernetes_pod_label_app"],
            "regex": EXPORTER,
            "action": "keep",
        },
        *labels,
    ]
    # Ports of annotated pods, as the examples of Prometheus find them.
    annotated = [
        {
            "source_labels": [f"{_ANNOTATION}_scrape"],
            "regex": "true",
            "action": "keep",
        },
        {
            "source_labels": ["__address__", f"{_ANNOTATION}_port"],
            "regex": r"(.+?)(?::\d+)?;(\d+)",
            "replacement": "$1:$2",
            "target_label": "__address__",
        },
        *labels,
    ]
    return {
        # A scrape that fails ends the series: on a busy machine it takes more than a second.
        "global": dict.fromkeys(("scrape_interval", "scrape_timeout"), "3s"),
        "scrape_configs": [
            {
                "job_name": EXPORTER,
                "kubernetes_sd_configs": [pods],
                "relabel_configs": of_pod,
            },
            {
                "job_name": "node-exporter",
                "metrics_path": "/node/metrics",
                "kubernetes_sd_configs": [pods],
                "relabel_configs": of_pod,
            },
            {
                "job_name": "annotated-pods",
                "kubernetes_sd_configs": [{"role": "pod"}],
                "relabel_configs": annotated,
            },
            {
                "job_name": "cadvisor",
                "scheme": "https",
                "tls_config": {"ca_file": f"{token}/ca.crt"},
                "bearer_token_file": f"{token}/token",
                "kubernetes_sd_configs": [{"role": "node"}],
                # Through the API server: any cluster permits that, and no certificate of a kubelet
                # has to be trusted.
                "relabel_configs": [
                    {"source_labels": ["__meta_kubernetes_node_name"], "target_label": "node"},
                    {"target_label": "__address__", "replacement": "kubernetes.default.svc:443"},
                    {
                        "source_labels": ["__meta_kubernetes_node_name"],
                        "target_label": "__metrics_path__",
                        "replacement": "/api/v1/nodes/$1/proxy/metrics/cadvisor",
                    },
                ],
                "metric_relabel_configs": [
                    {
                        "source_labels": ["__name__"],
                        "regex": "container_(cpu_usage_seconds_total|memory_working_set_bytes"
                        "|cpu_cfs_(throttled_)?periods_total)",
                        "action": "keep",
                    }
                ],
            },
        ],
    }


def _requests(milli_cpu: int) -> Document:
    """Return a request of CPU: without one, a container starves on a busy machine."""
    return {"requests": {"cpu": f"{milli_cpu}m"}}


def _rights(
    kind: str, name: str, namespace: str, rules: list[Document], *, account: str = ""
) -> list[Document]:
    """Return a Role or ClusterRole and its binding to a ServiceAccount, by default of its name."""
    group = "rbac.authorization.k8s.io"
    place = "" if kind == "ClusterRole" else namespace
    subject = {"kind": "ServiceAccount", "name": account or name, "namespace": namespace}
    reference = {"apiGroup": group, "kind": kind, "name": name}
    return [
        new(f"{group}/v1", kind, name, place, rules=rules),
        new(f"{group}/v1", f"{kind}Binding", name, place, roleRef=reference, subjects=[subject]),
    ]
