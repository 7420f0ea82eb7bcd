"""What tests, campaign and benchmarks share: real servers, faults on the wire and in a storage."""
