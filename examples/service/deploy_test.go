package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// Tests that the manifests and compose.yaml say what the code does. That they are what Kubernetes accepts is tested
// in einmal's module compat, with the types of its API.

// pod is what the tests read of a container and its pod.
type pod struct {
	Grace      int         `yaml:"terminationGracePeriodSeconds"`
	Containers []container `yaml:"containers"`
	Init       []container `yaml:"initContainers"`
}

type container struct {
	Args  []string `yaml:"args"`
	Ports []struct {
		Name string `yaml:"name"`
		Port int    `yaml:"containerPort"`
	} `yaml:"ports"`
	EnvFrom []struct {
		ConfigMap struct {
			Name string `yaml:"name"`
		} `yaml:"configMapRef"`
	} `yaml:"envFrom"`
	Env []struct {
		Name string `yaml:"name"`
		From struct {
			Field struct {
				Path string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	} `yaml:"env"`
	Startup   probe `yaml:"startupProbe"`
	Readiness probe `yaml:"readinessProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Lifecycle struct {
		PreStop struct {
			Sleep struct {
				Seconds int `yaml:"seconds"`
			} `yaml:"sleep"`
		} `yaml:"preStop"`
	} `yaml:"lifecycle"`
	Resources struct {
		Limits map[string]string `yaml:"limits"`
	} `yaml:"resources"`
}

type probe struct {
	Get struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
}

// manifest is any of the objects.
type manifest struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Data map[string]string `yaml:"data"` // of a ConfigMap
	Spec struct {
		ServiceName string    `yaml:"serviceName"` // of the StatefulSet
		Selector    yaml.Node `yaml:"selector"`
		Template    struct {
			Metadata struct {
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"metadata"`
			Spec pod `yaml:"spec"`
		} `yaml:"template"`
		Ports []struct {
			Target string `yaml:"targetPort"`
		} `yaml:"ports"` // of a Service
	} `yaml:"spec"`
}

// manifests are the objects of deploy, by kind and name.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob("deploy/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	found := map[string]manifest{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var m manifest
			err := decoder.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			found[m.Kind+" "+m.Metadata.Name] = m
		}
	}
	return found
}

// deployment is the manifests, the pod and its container, and what the service makes of the environment that they give
// it: all that the ConfigMap and the container set, secrets by a value of their own.
type deployment struct {
	all  map[string]manifest
	pod  pod
	main container
	cfg  config
}

func deployed(t *testing.T) deployment {
	t.Helper()
	all := manifests(t)
	pod := all["StatefulSet orders"].Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.Init) != 1 {
		t.Fatalf("%d containers, %d to begin with", len(pod.Containers), len(pod.Init))
	}
	c := pod.Containers[0]
	values := map[string]string{}
	for _, from := range c.EnvFrom {
		maps.Copy(values, all["ConfigMap "+from.ConfigMap.Name].Data)
	}
	for _, e := range c.Env {
		values[e.Name] = "secret"
	}
	values["DATABASE_URL"] = least["DATABASE_URL"]
	return deployment{all, pod, c, configOf(t, values)}
}

// configOf is what the service makes of an environment. Each variable of it must be known: to the service, to
// OpenTelemetry or to Go.
func configOf(t *testing.T, values map[string]string) config {
	t.Helper()
	asked := map[string]bool{}
	cfg, err := readConfig(func(name string) (string, bool) {
		asked[name] = true
		return lookup(values)(name)
	})
	if err != nil {
		t.Errorf("the service would refuse its environment: %v", err)
	}
	for name := range values {
		if !asked[name] && !strings.HasPrefix(name, "OTEL_") && name != "GOMEMLIMIT" {
			t.Errorf("nobody reads the variable %s", name)
		}
	}
	return cfg
}

func TestGracePeriod(t *testing.T) {
	t.Parallel()
	d := deployed(t)
	grace, before, stop := d.pod.Grace, d.main.Lifecycle.PreStop.Sleep.Seconds, d.cfg.stopTime()
	if least := before + int(stop.Seconds()) + 2; before == 0 || grace < least {
		t.Errorf("terminationGracePeriodSeconds is %d: preStop takes %d s and an ordered stop up to %v, so give %d",
			grace, before, stop, least)
	}
}

func TestStaticMembers(t *testing.T) {
	t.Parallel()
	for _, e := range deployed(t).main.Env {
		if e.Name == "INSTANCE_ID" && e.From.Field.Path == "metadata.name" {
			return
		}
	}
	t.Error("INSTANCE_ID is not the pod's name")
}

// TestProbes asks the code for what the probes and Prometheus ask.
func TestProbes(t *testing.T) {
	t.Parallel()
	d := deployed(t)
	all, c, cfg := d.all, d.main, d.cfg
	ports := map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = strconv.Itoa(p.Port)
	}
	if ":"+ports["http"] != cfg.httpAddr || ":"+ports["ops"] != cfg.opsAddr {
		t.Errorf("the container's ports are %v, the service listens at %s and %s", ports, cfg.httpAddr, cfg.opsAddr)
	}
	s := idleService(t)
	s.joined.Store(true)
	scrape := all["StatefulSet orders"].Spec.Template.Metadata.Annotations
	for name, path := range map[string]string{
		"startup": c.Startup.Get.Path, "readiness": c.Readiness.Get.Path, "liveness": c.Liveness.Get.Path,
		"Prometheus": scrape["prometheus.io/path"],
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://ops"+path, nil)
		s.probes(t.Context()).ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("%s asks for %s: %d", name, path, w.Code)
		}
	}
	if c.Readiness.Get.Path == c.Liveness.Get.Path {
		t.Error("a process that is not ready would be restarted: liveness must ask something else than readiness")
	}
	for name, port := range map[string]string{
		"startup": c.Startup.Get.Port, "readiness": c.Readiness.Get.Port, "liveness": c.Liveness.Get.Port,
		"Service orders-pods": all["Service orders-pods"].Spec.Ports[0].Target,
	} {
		if port != "ops" {
			t.Errorf("%s asks at the port %q", name, port)
		}
	}
	customers := all["Service orders"].Spec.Ports[0].Target
	if scrape["prometheus.io/port"] != ports["ops"] || customers != "http" {
		t.Errorf("Prometheus asks at %s, customers at %s", scrape["prometheus.io/port"], customers)
	}
}

// TestSelectors checks that Services, budget and StatefulSet mean the same pods.
func TestSelectors(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	set := all["StatefulSet orders"]
	app := set.Spec.Template.Metadata.Labels["app"]
	if _, there := all["Service "+set.Spec.ServiceName]; !there {
		t.Errorf("there is no Service %q", set.Spec.ServiceName)
	}
	for name, m := range all {
		if m.Kind == "ConfigMap" {
			continue
		}
		var selector struct {
			App    string            `yaml:"app"` // of a Service
			Labels map[string]string `yaml:"matchLabels"`
		}
		if err := m.Spec.Selector.Decode(&selector); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := selector.App + selector.Labels["app"]; got == "" || got != app {
			t.Errorf("%s selects pods with app=%q, the pods have %q", name, got, app)
		}
	}
}

// TestMemory checks that the container has room for what the parts may hold: the messages, twice for their batches,
// and the relay's.
func TestMemory(t *testing.T) {
	t.Parallel()
	d := deployed(t)
	mebibytes := func(text, unit string) int {
		n, err := strconv.Atoi(strings.TrimSuffix(text, unit))
		if err != nil {
			t.Fatalf("%q is no number of %s", text, unit)
		}
		return n
	}
	limit := mebibytes(d.main.Resources.Limits["memory"], "Mi")
	goLimit := mebibytes(d.all["ConfigMap orders"].Data["GOMEMLIMIT"], "MiB")
	if goLimit*10 > limit*9 || goLimit*10 < limit*8 {
		t.Errorf("GOMEMLIMIT is %d MiB and the container's limit %d MiB: give nine tenths of it", goLimit, limit)
	}
	if least := 2*heldBytes>>20 + 2*2*8 + 64; goLimit < least {
		t.Errorf("GOMEMLIMIT is %d MiB, and the parts may hold %d", goLimit, least)
	}
}

func TestMigrationRunsFirst(t *testing.T) {
	t.Parallel()
	first := deployed(t).pod.Init[0]
	values := map[string]string{}
	for _, e := range first.Env {
		values[e.Name] = least["DATABASE_URL"]
	}
	if _, err := readDatabaseURL(lookup(values)); err != nil || !slices.Equal(first.Args, []string{"migrate"}) {
		t.Errorf("the first container runs %q: %v", first.Args, err)
	}
}

// TestCompose checks the variables, the ports and the grace of compose.yaml.
func TestCompose(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Command     yaml.Node            `yaml:"command"`
			Environment map[string]string    `yaml:"environment"`
			Ports       []string             `yaml:"ports"`
			Grace       string               `yaml:"stop_grace_period"`
			DependsOn   map[string]yaml.Node `yaml:"depends_on"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	service := compose.Services["service"]
	cfg := configOf(t, service.Environment)
	if grace, err := time.ParseDuration(service.Grace); err != nil || grace <= cfg.stopTime() {
		t.Errorf("stop_grace_period is %q, and an ordered stop takes up to %v", service.Grace, cfg.stopTime())
	}
	for _, port := range service.Ports {
		if !strings.HasSuffix(port, cfg.httpAddr) && !strings.HasSuffix(port, cfg.opsAddr) {
			t.Errorf("nobody listens at %s", port)
		}
	}
	if _, err := readDatabaseURL(lookup(compose.Services["migrate"].Environment)); err != nil {
		t.Errorf("migrate: %v", err)
	}
	var topics []string
	command := compose.Services["topics"].Command
	if err := command.Decode(&topics); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{cfg.ordersTopic, cfg.paymentsTopic} {
		if !strings.Contains(strings.Join(topics, " "), topic) {
			t.Errorf("nobody creates the topic %s", topic)
		}
	}
	for name, other := range compose.Services {
		for on := range other.DependsOn {
			if _, there := compose.Services[on]; !there {
				t.Errorf("%s waits for %s, which is not there", name, on)
			}
		}
	}
}

// TestDockerfile checks that the image is built by the Go of go.mod, and has the ports of the code.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	image, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	if version == nil || !bytes.Contains(image, append([]byte("FROM golang:"), version[1]...)) {
		t.Errorf("go.mod asks for %q, and the image is built by another Go", version)
	}
	cfg, err := readConfig(lookup(least))
	if err != nil {
		t.Fatal(err)
	}
	want := "EXPOSE " + strings.TrimPrefix(cfg.httpAddr, ":") + " " + strings.TrimPrefix(cfg.opsAddr, ":")
	if !bytes.Contains(image, []byte(want)) {
		t.Errorf("the Dockerfile does not say %q", want)
	}
}
