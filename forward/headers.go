package forward

// RetryEventHeader has the id of the event, in a retry topic.
const RetryEventHeader = "einmal-retry-event"
