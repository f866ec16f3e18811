// Package grafana has the test of docs/dashboards against the types of Grafana's dashboards.
package grafana

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

const file = "../../docs/dashboards/einmal.json"

// decode reads a dashboard as its schema says: a field that is missing, is not there in Grafana, or has another type is
// an error, in the options of a panel and in the queries of Prometheus too.
func decode(text []byte) (*dashboard.Dashboard, error) {
	known := cog.NewRuntime()
	known.RegisterPanelcfgVariant(stat.VariantConfig())
	known.RegisterPanelcfgVariant(timeseries.VariantConfig())
	known.RegisterDataqueryVariant(prometheus.VariantConfig())
	var wrong cog.BuildErrors // a list without an entry if nothing is wrong, and then panels are not filled in
	if err := new(dashboard.Dashboard).UnmarshalJSONStrict(text); !errors.As(err, &wrong) || len(wrong) > 0 {
		return nil, fmt.Errorf("the dashboard is not of Grafana's schema: %w", err)
	}
	var d dashboard.Dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	return &d, d.Validate()
}

// The dashboard is one that Grafana takes, and its panels stand beside one another.
func TestDashboardIsOfGrafanasSchema(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if newest := dashboard.NewDashboard().SchemaVersion; d.SchemaVersion > newest {
		t.Errorf("its schema is %d, Grafana's %d", d.SchemaVersion, newest)
	}
	ids, taken := map[uint32]bool{}, map[[2]uint32]string{}
	for _, panel := range d.Panels {
		switch {
		case panel.Panel != nil:
			if _, is := cog.NewRuntime().ConfigForPanelcfgVariant(panel.Panel.Type); !is {
				t.Errorf("%s: its options are not looked at", panel.Panel.Type)
			}
			place(t, ids, taken, panel.Panel.Id, panel.Panel.Title, panel.Panel.GridPos)
		case panel.RowPanel != nil:
			place(t, ids, taken, &panel.RowPanel.Id, panel.RowPanel.Title, panel.RowPanel.GridPos)
		}
	}
	if len(ids) < 20 {
		t.Errorf("%d panels", len(ids))
	}
}

// place notes a panel's id, and the cells of Grafana's grid of 24 columns in which it stands.
func place(t *testing.T, ids map[uint32]bool, taken map[[2]uint32]string, id *uint32, title *string,
	at *dashboard.GridPos) {
	t.Helper()
	if id == nil || title == nil || at == nil {
		t.Errorf("a panel without id, title or place: %v, %v, %v", id, title, at)
		return
	}
	if ids[*id] {
		t.Errorf("%q: another panel has the id %d", *title, *id)
	}
	ids[*id] = true
	for x := at.X; x < at.X+at.W; x++ {
		for y := at.Y; y < at.Y+at.H; y++ {
			if other, is := taken[[2]uint32{x, y}]; is || x >= 24 {
				t.Errorf("%q at column %d, line %d, where %q stands", *title, x, y, other)
				return
			}
			taken[[2]uint32{x, y}] = *title
		}
	}
}

// What Grafana would not show is found.
func TestBrokenDashboardsAreFound(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a panel's field in another spelling": {`"fieldConfig"`, `"fieldconfig"`},
		"a query's field":                     {`"legendFormat"`, `"legend"`},
		"an option of a panel":                {`"textMode"`, `"textmode"`},
		"a text where a number is":            {`"w": 6`, `"w": "6"`},
		"a panel of no width":                 {`"w": 6`, `"w": 0`},
		"a list where a text is":              {`"refId": "A"`, `"refId": ["A"]`},
	} {
		broken := bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(broken, text) || !json.Valid(broken) {
			t.Errorf("%s: the dashboard has no %s", name, change[0])
		}
		if _, err := decode(broken); err == nil {
			t.Errorf("%s is not found", name)
		}
	}
}
