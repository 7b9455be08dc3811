//! The names that DNS gave to addresses.

use base::limits::{DNS_NAME_SECONDS, SECOND_NS};
use filter::Row;
use filter::record::FieldValue;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// A name that an address has.
#[derive(Debug)]
struct Name {
    /// The name that a client asked for, with which a chain of CNAMEs began.
    text: Arc<[u8]>,
    from: u64,
    until: u64,
}

#[derive(Debug)]
pub(super) struct Seen {
    most: usize,
    of: HashMap<IpAddr, Name>,
    /// The addresses, the one first seen at the front.
    order: VecDeque<IpAddr>,
}

impl Seen {
    /// Keeps this many names at most.
    pub(super) fn new(most: u64) -> Seen {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Seen { most, of: HashMap::new(), order: VecDeque::new() }
    }

    /// Learns from a record of an answer; others say nothing. Returns the number of names forgotten for it.
    pub(super) fn learn(&mut self, row: &Row<'_>, time: u64) -> u64 {
        if row.schema().name != "dns" || row.text("dns.type") == Some(b"request") {
            return 0;
        }
        let (Some(asked), Some(FieldValue::Rows(answers))) = (row.text("dns.rrname"), row.named("dns.answers")) else {
            return 0;
        };
        let text: Arc<[u8]> = asked.into();
        let mut forgotten = 0;
        for answer in answers {
            let is_address = matches!(answer.text("rrtype"), Some(b"A" | b"AAAA"));
            let address = answer.text("rdata").filter(|_| is_address).and_then(|text| std::str::from_utf8(text).ok());
            let Some(address) = address.and_then(|text| text.parse().ok()) else { continue };
            let seconds = answer.number("ttl").unwrap_or(0).max(DNS_NAME_SECONDS);
            let until = time.saturating_add(seconds.saturating_mul(SECOND_NS));
            forgotten += self.put(address, Name { text: Arc::clone(&text), from: time, until });
        }
        forgotten
    }

    fn put(&mut self, address: IpAddr, name: Name) -> u64 {
        let mut forgotten = 0;
        if !self.of.contains_key(&address) {
            while self.of.len() >= self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.of.remove(&oldest);
                forgotten += 1;
            }
            if self.most == 0 {
                return 1;
            }
            self.order.push_back(address);
        }
        self.of.insert(address, name);
        forgotten
    }

    /// The name that the address had at this time.
    pub(super) fn name(&self, address: IpAddr, time: u64) -> Option<&[u8]> {
        let name = self.of.get(&address)?;
        (name.from..=name.until).contains(&time).then_some(&*name.text)
    }
}
