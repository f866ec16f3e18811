// Package idempotency makes HTTP calls that a service makes, and those that it serves, take effect once.
//
// A handler derives the key of a call from the event that it handles (KeyFor), so that every repetition of the event
// makes the call with the same key. A Transport sends the key and repeats the call with it until the answer is
// definite. The server that is called answers a key that it knows with what it answered before: a Handler does so, in
// the transaction of its effect.
//
//	client := &http.Client{Transport: idempotency.NewTransport(nil, nil)} // the key of a call by idempotency.KeyFor
//
//	orders, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), placeOrder,
//		idempotency.HandlerConfig{Principal: tenant}) // placeOrder writes with the transaction that it is given
package idempotency
