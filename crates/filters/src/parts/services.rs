//! Which application protocols each flow had, for the records of flows, which come last.

use base::limits::SERVICES;
use filter::Counters;
use std::collections::HashMap;

/// Protocols of one flow that are kept.
const EACH: usize = 4;

/// Protocols by the number of the flow.
#[derive(Debug, Default)]
pub(crate) struct Services {
    of: HashMap<u64, Known>,
}

/// What is known of a flow: its protocols in the order in which they came, and how many records of each there were.
#[derive(Clone, Copy, Debug, Default)]
struct Known([Option<(&'static str, u32)>; EACH]);

impl Services {
    /// A record of this protocol came; says the how manieth of the flow it is, where that is kept.
    pub(crate) fn note(&mut self, flow_id: u64, service: &'static str, counters: &mut Counters) -> Option<u32> {
        if self.of.len() >= SERVICES && !self.of.contains_key(&flow_id) {
            counters.events.add("flows whose protocol is not kept", 1);
            return None;
        }
        let known = self.of.entry(flow_id).or_default();
        let is_it = |one: &&mut Option<(&str, u32)>| one.is_none_or(|(name, _)| name == service);
        let (_, count) = known.0.iter_mut().find(is_it)?.get_or_insert((service, 0));
        *count = count.saturating_add(1);
        Some(*count)
    }

    /// The record of the flow came: its protocols, the first one first.
    pub(crate) fn take(&mut self, flow_id: u64) -> impl Iterator<Item = &'static str> + use<> {
        self.of.remove(&flow_id).unwrap_or_default().0.into_iter().flatten().map(|(name, _)| name)
    }
}
