package main

// The program runs as it stands: what it prints is what README says.
func Example() {
	main()
	// Output: 3 messages, charged: [A-1 A-2]
}
