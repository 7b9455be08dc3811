//! Remembers the application protocols of each flow until the flow's own record arrives.
//!
//! - [`Services`] — the protocols of flows
//! - [`late`] — flows' records that wait for a protocol: a request without an answer has its record later

pub(crate) mod late;

use base::limits::SERVICES;
use filter::Counters;
use std::collections::{HashMap, VecDeque};

/// Protocols kept for one flow.
const EACH: usize = 4;

/// Protocols by flow id.
#[derive(Debug, Default)]
pub(crate) struct Services {
    of: HashMap<u64, Known>,
    /// Flow ids in order of arrival. Ids of flows already taken are removed later.
    order: VecDeque<u64>,
}

/// The protocols of a flow in order of arrival, and the number of records of each.
#[derive(Clone, Copy, Debug, Default)]
struct Known([Option<(&'static str, u32)>; EACH]);

impl Services {
    /// Notes a record of this protocol. Returns its number among the flow's records of the protocol, if kept.
    pub(crate) fn note(&mut self, flow_id: u64, service: &'static str, counters: &mut Counters) -> Option<u32> {
        if !self.of.contains_key(&flow_id) {
            self.make_room(counters);
            self.order.push_back(flow_id);
        }
        let known = self.of.entry(flow_id).or_default();
        let is_it = |one: &&mut Option<(&str, u32)>| one.is_none_or(|(name, _)| name == service);
        let (_, count) = known.0.iter_mut().find(is_it)?.get_or_insert((service, 0));
        *count = count.saturating_add(1);
        Some(*count)
    }

    /// Forgets the oldest flow when there are too many: its record may never come.
    fn make_room(&mut self, counters: &mut Counters) {
        while self.of.len() >= SERVICES
            && let Some(oldest) = self.order.pop_front()
        {
            if self.of.remove(&oldest).is_some() {
                counters.events.add("flows whose protocol is not kept", 1);
            }
        }
        // Remove taken flows once they are half of the queue.
        if self.order.len() >= 2 * SERVICES {
            self.order.retain(|flow_id| self.of.contains_key(flow_id));
        }
    }

    /// Takes the protocols of a flow whose record came, in order of arrival.
    pub(crate) fn take(&mut self, flow_id: u64) -> Vec<&'static str> {
        self.of.remove(&flow_id).unwrap_or_default().0.into_iter().flatten().map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocols(services: &mut Services, flow_id: u64) -> Vec<&'static str> {
        services.take(flow_id)
    }

    #[test]
    fn flows_without_a_record_do_not_fill_it_for_ever() {
        let (mut services, mut counters) = (Services::default(), Counters::default());
        let last = SERVICES as u64;
        for flow_id in 0..=last {
            assert_eq!(services.note(flow_id, "dns", &mut counters), Some(1));
        }
        assert_eq!(counters.events.get("flows whose protocol is not kept"), 1);
        assert_eq!(services.note(last, "tls", &mut counters), Some(1));
        assert_eq!(services.note(last, "dns", &mut counters), Some(2));
        assert_eq!(protocols(&mut services, last), ["dns", "tls"]);
        assert!(protocols(&mut services, 0).is_empty());
        assert_eq!(protocols(&mut services, 1), ["dns"]);
    }

    #[test]
    fn flows_that_were_taken_leave_the_queue() {
        let (mut services, mut counters) = (Services::default(), Counters::default());
        for flow_id in 0..=2 * SERVICES as u64 {
            services.note(flow_id, "dns", &mut counters);
            assert_eq!(protocols(&mut services, flow_id), ["dns"]);
        }
        assert!(services.order.len() <= 2 * SERVICES, "{}", services.order.len());
        assert_eq!(counters.events.get("flows whose protocol is not kept"), 0);
    }
}
