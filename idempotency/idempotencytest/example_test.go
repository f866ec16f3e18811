package idempotencytest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencytest"
)

// A provider that takes the effect and loses the answer: the call is repeated with its key, and took effect once.
func ExampleProvider() {
	provider := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{
		Script: []idempotencytest.Fault{idempotencytest.DropAfter, idempotencytest.FailBefore},
	})
	server := httptest.NewServer(provider)
	defer server.Close()
	client := &http.Client{Transport: idempotency.NewTransport(nil, nil)}
	defer client.CloseIdleConnections()

	res, err := client.Do(charge(server.URL, "order-1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()

	fmt.Println(res.Status)
	fmt.Println("charges of order-1:", provider.Effects()[idempotency.Key("charge", "order-1")])
	fmt.Println("requests:", len(provider.Calls()))
	// Output:
	// 201 Created
	// charges of order-1: 1
	// requests: 3
}

func charge(url, order string) *http.Request {
	req, err := http.NewRequest(http.MethodPost, url+"/charges", strings.NewReader(`{"order":"`+order+`"}`))
	if err != nil {
		panic(err)
	}
	return req.WithContext(idempotency.WithKey(req.Context(), idempotency.Key("charge", order)))
}
