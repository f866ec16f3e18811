// Package kubernetes has the test of examples/service/deploy against the types of the API of Kubernetes.
package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const deploy = "../../examples/service/deploy"

// types are those of the manifests' objects, by apiVersion and kind.
var types = map[string]func() metav1.Object{
	"apps/v1 StatefulSet":           func() metav1.Object { return &appsv1.StatefulSet{} },
	"v1 Service":                    func() metav1.Object { return &corev1.Service{} },
	"v1 ConfigMap":                  func() metav1.Object { return &corev1.ConfigMap{} },
	"policy/v1 PodDisruptionBudget": func() metav1.Object { return &policyv1.PodDisruptionBudget{} },
}

// object decodes as strictly as the API server does: a field that its type does not have in this spelling, one that is
// there twice, and a value of another type are errors.
func object(text []byte) (metav1.Object, error) {
	var of metav1.TypeMeta
	if err := yaml.Unmarshal(text, &of); err != nil {
		return nil, err
	}
	empty, known := types[of.APIVersion+" "+of.Kind]
	if !known {
		return nil, errors.New("there is no " + of.APIVersion + " " + of.Kind)
	}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	o := empty()
	strict, err := kjson.UnmarshalStrict(asJSON, o)
	return o, errors.Join(append(strict, err)...)
}

// manifests are the documents of all files.
func manifests(t *testing.T) (texts [][]byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(deploy, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, document)
		}
	}
	return texts
}

func TestManifests(t *testing.T) {
	t.Parallel()
	var kinds []string
	for _, text := range manifests(t) {
		o, err := object(text)
		if err != nil {
			t.Errorf("%v, in\n%s", err, text)
			continue
		}
		if wrong := validation.IsDNS1035Label(o.GetName()); len(wrong) > 0 {
			t.Errorf("the name %q: %v", o.GetName(), wrong)
		}
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			kinds = append(kinds, "StatefulSet")
			checkStatefulSet(t, o)
		case *corev1.Service:
			kinds = append(kinds, "Service")
			checkPorts(t, o)
		case *policyv1.PodDisruptionBudget:
			kinds = append(kinds, "PodDisruptionBudget")
			checkSelector(t, o.Spec.Selector)
		case *corev1.ConfigMap:
			kinds = append(kinds, "ConfigMap")
		}
	}
	slices.Sort(kinds)
	want := []string{"ConfigMap", "PodDisruptionBudget", "Service", "Service", "StatefulSet"}
	if !slices.Equal(kinds, want) {
		t.Errorf("there are %q, want %q", kinds, want)
	}
}

// checkStatefulSet looks at what types do not show: what must be there, and what must fit together.
func checkStatefulSet(t *testing.T, set *appsv1.StatefulSet) {
	t.Helper()
	checkSelector(t, set.Spec.Selector)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(set.Spec.Template.Labels)) {
		t.Errorf("%v does not select the template's labels %v: %v", set.Spec.Selector, set.Spec.Template.Labels, err)
	}
	pod := set.Spec.Template.Spec
	if grace := pod.TerminationGracePeriodSeconds; set.Spec.ServiceName == "" || grace == nil {
		t.Errorf("serviceName is %q, terminationGracePeriodSeconds %v", set.Spec.ServiceName, grace)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Image == "" || len(validation.IsDNS1123Label(c.Name)) > 0 {
			t.Errorf("the container %q has the image %q", c.Name, c.Image)
		}
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
			checkPort(t, p.Name, p.ContainerPort)
		}
		for name, probe := range map[string]*corev1.Probe{
			"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe,
		} {
			if probe != nil && (probe.HTTPGet == nil || !ports[probe.HTTPGet.Port.String()]) {
				t.Errorf("the %s probe of %s asks at no port of it: %+v", name, c.Name, probe)
			}
		}
		for name, limit := range c.Resources.Limits {
			if request, there := c.Resources.Requests[name]; there && request.Cmp(limit) > 0 {
				t.Errorf("%s of %s: more is requested than the limit", name, c.Name)
			}
		}
		for _, e := range c.Env {
			if wrong := validation.IsEnvVarName(e.Name); len(wrong) > 0 || e.Value != "" && e.ValueFrom != nil {
				t.Errorf("the variable %q of %s: %v", e.Name, c.Name, wrong)
			}
		}
	}
	if main := pod.Containers[0]; main.StartupProbe == nil || main.ReadinessProbe == nil || main.LivenessProbe == nil {
		t.Error("a probe is missing")
	}
}

func checkSelector(t *testing.T, selector *metav1.LabelSelector) {
	t.Helper()
	if selector == nil || len(selector.MatchLabels) == 0 {
		t.Errorf("the selector %v selects no pods, or all", selector)
	}
}

func checkPorts(t *testing.T, service *corev1.Service) {
	t.Helper()
	if len(service.Spec.Selector) == 0 || len(service.Spec.Ports) == 0 {
		t.Errorf("Service %s selects %v, and has the ports %v", service.Name, service.Spec.Selector, service.Spec.Ports)
	}
	for _, p := range service.Spec.Ports {
		checkPort(t, p.Name, p.Port)
	}
}

func checkPort(t *testing.T, name string, number int32) {
	t.Helper()
	wrong := append(validation.IsValidPortName(name), validation.IsValidPortNum(int(number))...)
	if len(wrong) > 0 {
		t.Errorf("port %q: %v", name, wrong)
	}
}

// TestBrokenManifests breaks the StatefulSet in ways that TestManifests must see.
func TestBrokenManifests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deploy, "statefulset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := object(text); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"terminationGracePeriodSeconds: 60":  "terminationGracePeriod: 60",                     // no such field
		"replicas: 3":                        "replicas: three",                                // of another type
		"apiVersion: apps/v1":                "apiVersion: apps/v1beta1",                       // no such version
		"preStop:":                           "prestop:",                                       // another spelling
		"runAsNonRoot: true":                 "runAsNonRoot: true\n        runAsNonRoot: true", // twice
		"httpGet: {path: /livez, port: ops}": "httpGet: {url: /livez, port: ops}",
	} {
		broken := bytes.Replace(text, []byte(from), []byte(to), 1)
		if bytes.Equal(broken, text) {
			t.Errorf("the StatefulSet does not have %q", from)
		} else if _, err := object(broken); err == nil {
			t.Errorf("%q would pass", to)
		}
	}
}
