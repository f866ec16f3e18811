// Package redact decides what of a text may be seen: in a line of a log, a Status, a span, a dead letter, on a
// terminal. All that prints a text which it has not written itself asks here.
//
//	Text     a text without what looks like a secret
//	Message  a text without what looks like a secret, and without what it repeats of a message
//	Error    an error whose text is Text, and moves nothing, for a line of a log
//	URL      where a URL leads, without what may be a secret in it
//	Line     a text that moves nothing on a terminal
//	JSON     a document that moves nothing on a terminal, with the same meaning
//	Strings  a document whose texts are without what looks like a secret
//
// A text is cut before it is looked at, so that its length costs nothing, and what is done then takes a time that grows
// with the text and with the message, and not with their product.
package redact
