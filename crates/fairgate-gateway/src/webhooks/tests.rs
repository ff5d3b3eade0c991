//! Tests of deliveries.
