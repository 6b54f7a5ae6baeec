"""What the HorizontalPodAutoscaler controller computes, from documents of the Kubernetes API."""
