"""Which workload uses which device. Runs beside collection: it never delays, fails or blanks a sample or a scrape."""
