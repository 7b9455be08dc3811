//! Keeps flows' records while another record may still tell their protocol.
//!
//! The clock of packets decides how long, as it decides when `transactions` gives up waiting.

use super::Services;
use base::limits::{LATE_FLOWS, SECOND_NS, TRANSACTION_IDLE_NS};
use filter::Counters;
use filter::prelude::*;
use filter::record::FieldValue;
use std::collections::VecDeque;

/// A request of a flow has its record this long after the flow's last packet, at the latest: `transactions` gives up waiting
/// for an answer then, with a second for the clock.
const LATE_NS: u64 = TRANSACTION_IDLE_NS + SECOND_NS;

/// Records of flows whose protocol is not known yet, in order of arrival.
#[derive(Debug)]
pub(crate) struct LateFlows {
    waiting: VecDeque<LateFlow>,
    /// The most that wait; 0: no other record will tell a protocol.
    most: usize,
}

/// A flow's record that waits.
#[derive(Debug)]
pub(crate) struct LateFlow {
    /// The time of its block.
    pub(crate) time: u64,
    pub(crate) row: Vec<u8>,
    flow_id: u64,
    /// It waits until this time.
    until: u64,
}

impl LateFlow {
    /// Takes the protocols of its flow.
    pub(crate) fn services(&self, services: &mut Services) -> Vec<&'static str> {
        services.take(self.flow_id)
    }
}

impl LateFlows {
    /// For a filter with these parameters: no flow waits if nothing but flows comes.
    pub(crate) fn of(params: &Params, schemas: &[&Schema]) -> LateFlows {
        let are_flows = |id: &u32| schemas.iter().any(|schema| schema.id() == *id && schema.name == "flow");
        let are_alone = !params.come().is_empty() && params.come().iter().all(are_flows);
        LateFlows { waiting: VecDeque::new(), most: if are_alone { 0 } else { LATE_FLOWS } }
    }

    /// Keeps the record of a flow whose protocol is not known. `time`: that of its block. Returns the one that waits longest,
    /// if there are too many.
    pub(crate) fn keep(
        &mut self,
        row: &Row<'_>,
        bytes: &[u8],
        time: u64,
        now: u64,
        counters: &mut Counters,
    ) -> Option<LateFlow> {
        let end = match row.named("flow.end") {
            Some(FieldValue::Time(end)) => end,
            _ => time,
        };
        let until = end.saturating_add(LATE_NS).max(now.saturating_add(SECOND_NS));
        let flow_id = row.number("flow_id").unwrap_or(0);
        self.waiting.push_back(LateFlow { time, row: bytes.to_vec(), flow_id, until });
        if self.waiting.len() <= self.most {
            return None;
        }
        if self.most == 0 {
            return self.waiting.pop_front();
        }
        counters.events.add("flows whose protocol was not waited for", 1);
        self.waiting.pop_front()
    }

    /// The next record that waited long enough at this time; at `u64::MAX`, any.
    pub(crate) fn due(&mut self, now: u64) -> Option<LateFlow> {
        self.waiting.pop_front_if(|late| late.until <= now)
    }

    /// When the next one will have waited long enough.
    pub(crate) fn next_due(&self) -> u64 {
        self.waiting.front().map_or(u64::MAX, |late| late.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FLOW: Schema =
        Schema::new("flow", &[Field::new("flow_id", FieldType::Number), Field::new("flow.end", FieldType::Time)]);

    /// Keeps a flow that ended at this time, in seconds.
    fn keep(flows: &mut LateFlows, flow_id: u64, end: u64, now: u64, counters: &mut Counters) -> Option<u64> {
        let mut writer = RowWriter::new(&FLOW);
        writer.begin();
        writer.number("flow_id", flow_id).time("flow.end", end * SECOND_NS);
        let bytes = writer.row().to_vec();
        let late = flows.keep(&Row::new(&FLOW, &bytes).unwrap(), &bytes, 0, now * SECOND_NS, counters);
        late.map(|late| late.flow_id)
    }

    fn due(flows: &mut LateFlows, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| flows.due(now * SECOND_NS).map(|late| late.flow_id)).collect()
    }

    #[test]
    fn flows_wait_as_long_as_a_request_of_theirs_may() {
        let (mut flows, mut counters) = (LateFlows::of(&Params::new(), &[]), Counters::default());
        keep(&mut flows, 1, 10, 15, &mut counters);
        assert!(due(&mut flows, 70).is_empty());
        // This one ended long ago, but has just come.
        keep(&mut flows, 2, 5, 70, &mut counters);
        assert_eq!((due(&mut flows, 70), flows.next_due()), (vec![], 71 * SECOND_NS));
        assert_eq!((due(&mut flows, 71), flows.next_due()), (vec![1, 2], u64::MAX));
    }

    #[test]
    fn the_oldest_of_too_many_goes() {
        let (mut flows, mut counters) = (LateFlows::of(&Params::new(), &[]), Counters::default());
        for flow_id in 0..LATE_FLOWS as u64 {
            assert_eq!(keep(&mut flows, flow_id, 1, 1, &mut counters), None);
        }
        assert_eq!(keep(&mut flows, 9, 1, 1, &mut counters), Some(0));
        assert_eq!(counters.events.get("flows whose protocol was not waited for"), 1);
    }

    #[test]
    fn flows_that_come_alone_do_not_wait() {
        let mut params = Params::new();
        params.set_come(vec![FLOW.id()]);
        let (mut flows, mut counters) = (LateFlows::of(&params, &[&FLOW]), Counters::default());
        assert_eq!(keep(&mut flows, 7, 1, 1, &mut counters), Some(7));
        assert_eq!((flows.next_due(), counters), (u64::MAX, Counters::default()));
    }
}
