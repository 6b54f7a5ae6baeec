// Reader reads metrics with the Go clients of Kubernetes, as other controllers do.
//
//	reader values KUBECONFIG CONTENT_TYPE NAMESPACE METRIC EXTERNAL_METRIC
//	reader verify KUBECONFIG SERVER ACCEPT PATH...
//
// values prints what the clients of all groups return, one line in JSON for each value: METRIC is
// read for all pods of NAMESPACE, in both versions of the group. Each line also has the type that
// the server sent. Resource metrics are left out if they are not served.
//
// verify sends requests to SERVER, decodes each answer with the serializers of Kubernetes, encodes
// it again, and prints a line with the path, the status, the Content-Type and "same" or both forms.
// OpenAPI in protobuf is compared with what Kubernetes makes of the same document in JSON.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"mime"
	"net/http"
	"os"
	"sort"

	openapi "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	discoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	customv1beta1 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	customv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 6 {
		log.Fatal("usage: see the comment at the top of reader.go")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[2])
	check(err)
	switch os.Args[1] {
	case "values":
		values(config, os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case "verify":
		config.Host = os.Args[3]
		// The caller names a server of its own on this machine.
		config.TLSClientConfig.Insecure, config.CAData, config.CAFile = true, nil, ""
		verify(config, os.Args[4], os.Args[5:])
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// line is one value, as a client returned it.
type line struct {
	Group    string `json:"group"`
	Object   string `json:"object"`
	Metric   string `json:"metric"`
	Value    string `json:"value"`
	Time     int64  `json:"time"`
	Received string `json:"received"`
}

// recorder remembers the Content-Type of the last response.
type recorder struct {
	http.RoundTripper
	received string
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	if err == nil {
		r.received = response.Header.Get("Content-Type")
	}
	return response, err
}

func values(config *rest.Config, contentType, namespace, metric, external string) {
	record := &recorder{}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		record.RoundTripper = inner
		return record
	})
	config.ContentType, config.AcceptContentTypes = contentType, contentType
	output := json.NewEncoder(os.Stdout)
	emit := func(each line) {
		each.Received = record.received
		check(output.Encode(each))
	}
	pod := corev1.SchemeGroupVersion.WithKind("Pod")
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{pod.GroupVersion()})
	mapper.Add(pod, meta.RESTScopeNamespace)
	for _, version := range []schema.GroupVersion{
		customv1beta1.SchemeGroupVersion, customv1beta2.SchemeGroupVersion,
	} {
		client, err := customclient.NewForVersionForConfig(config, mapper, version)
		check(err)
		list, err := client.NamespacedMetrics(namespace).GetForObjects(
			pod.GroupKind(), labels.Everything(), metric, labels.Everything())
		check(err)
		for _, each := range list.Items {
			emit(line{Group: version.String(), Object: each.DescribedObject.Name,
				Metric: each.Metric.Name, Value: each.Value.String(), Time: each.Timestamp.Unix()})
		}
	}
	externals, err := externalclient.NewForConfig(config)
	check(err)
	list, err := externals.NamespacedMetrics(namespace).List(external, labels.Everything())
	check(err)
	for _, each := range list.Items {
		emit(line{Group: externalv1beta1.SchemeGroupVersion.String(),
			Object: labels.FormatLabels(each.MetricLabels), Metric: each.MetricName,
			Value: each.Value.String(), Time: each.Timestamp.Unix()})
	}
	resources, err := resourceclient.NewForConfig(config)
	check(err)
	pods, err := resources.MetricsV1beta1().PodMetricses(namespace).List(
		context.Background(), metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	check(err)
	for _, each := range pods.Items {
		for _, container := range each.Containers {
			names := make([]string, 0, len(container.Usage))
			for name := range container.Usage {
				names = append(names, string(name))
			}
			sort.Strings(names)
			for _, name := range names {
				quantity := container.Usage[corev1.ResourceName(name)]
				emit(line{Group: metricsv1beta1.SchemeGroupVersion.String(),
					Object: each.Name + "/" + container.Name, Metric: name,
					Value: quantity.String(), Time: each.Timestamp.Unix()})
			}
		}
	}
}

func verify(config *rest.Config, accept string, paths []string) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		discoveryv2.AddToScheme, discoveryv2beta1.AddToScheme, customv1beta1.AddToScheme,
		customv1beta2.AddToScheme, externalv1beta1.AddToScheme, metricsv1beta1.AddToScheme,
		metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
	} {
		check(add(scheme))
	}
	// Releases before 1.37 lack this version, whose types are those of v1beta1.
	scheme.AddKnownTypes(schema.GroupVersion{Group: metricsv1beta1.GroupName, Version: "v1"},
		&metricsv1beta1.NodeMetrics{}, &metricsv1beta1.NodeMetricsList{},
		&metricsv1beta1.PodMetrics{}, &metricsv1beta1.PodMetricsList{})
	supported := serializer.NewCodecFactory(scheme).SupportedMediaTypes()
	client, err := rest.HTTPClientFor(config)
	check(err)
	get := func(path, accept string) (*http.Response, []byte) {
		request, err := http.NewRequest(http.MethodGet, config.Host+path, nil)
		check(err)
		request.Header.Set("Accept", accept)
		response, err := client.Do(request)
		check(err)
		body, err := io.ReadAll(response.Body)
		check(err)
		return response, body
	}
	for _, path := range paths {
		response, body := get(path, accept)
		received := response.Header.Get("Content-Type")
		mediaType, _, err := mime.ParseMediaType(received)
		check(err)
		var result string
		if path == "/openapi/v2" {
			_, document := get(path, "application/json")
			parsed, err := openapi.ParseDocument(document)
			check(err)
			expected, err := proto.Marshal(parsed)
			check(err)
			result = same(body, expected)
		} else {
			result = compare(supported, mediaType, body)
		}
		fmt.Printf("%s %d %s %s\n", path, response.StatusCode, received, result)
	}
}

// compare decodes a body and encodes it again.
func compare(supported []runtime.SerializerInfo, mediaType string, body []byte) string {
	info, ok := runtime.SerializerInfoForMediaType(supported, mediaType)
	if !ok {
		return "unknown type"
	}
	// The list of groups is sent without an apiVersion.
	groups := schema.GroupVersionKind{Version: "v1", Kind: "APIGroupList"}
	object, kind, err := info.Serializer.Decode(body, &groups, nil)
	if err != nil {
		return err.Error()
	}
	if *kind == groups {
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Kind: groups.Kind})
	}
	var encoded bytes.Buffer
	if err := info.Serializer.Encode(object, &encoded); err != nil {
		return err.Error()
	}
	return same(body, encoded.Bytes())
}

func same(body, expected []byte) string {
	if bytes.Equal(body, expected) {
		return "same"
	}
	return fmt.Sprintf("differs: %q, expected: %q", body, expected)
}
