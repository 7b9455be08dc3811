//! Which application protocol each flow had, for the records of flows, which come last.

use base::limits::SERVICES;
use filter::Counters;
use std::collections::HashMap;

/// Protocols by the number of the flow.
#[derive(Debug, Default)]
pub(crate) struct Services {
    of: HashMap<u64, &'static str>,
}

impl Services {
    /// A record of this protocol came.
    pub(crate) fn note(&mut self, flow_id: u64, service: &'static str, counters: &mut Counters) {
        if self.of.len() < SERVICES || self.of.contains_key(&flow_id) {
            self.of.entry(flow_id).or_insert(service);
        } else {
            counters.events.add("flows whose protocol is not kept", 1);
        }
    }

    /// The record of the flow came: the protocol that was noted first.
    pub(crate) fn take(&mut self, flow_id: u64) -> Option<&'static str> {
        self.of.remove(&flow_id)
    }
}
