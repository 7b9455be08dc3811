//! Facts about a flow's interface: granted when the flow opens, and updated by the driver.

use buffer::flow::{Application, Facts};
use flow::Granted;
use stack::{ChecksumRule, Stack, TcpFacts};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A change of the facts of a socket's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Address and port of this side.
    pub local: SocketAddr,
    /// Address and port of the other side, if there is one.
    pub peer: Option<SocketAddr>,
    /// The new facts.
    pub facts: Facts,
}

/// A callback after a change. A thread that works for the socket calls it before the socket does anything else. The
/// callback must neither block nor use the socket.
#[derive(Clone)]
pub struct OnChange(Arc<dyn Fn(&Change) + Send + Sync>);

impl OnChange {
    /// Calls `call` after each change.
    pub fn new(call: impl Fn(&Change) + Send + Sync + 'static) -> OnChange {
        OnChange(Arc::new(call))
    }
}

impl fmt::Debug for OnChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnChange(..)")
    }
}

impl PartialEq for OnChange {
    fn eq(&self, other: &OnChange) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OnChange {}

/// The facts of one flow, as its socket and stack know them.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) stack: stack::Facts,
    facts: Facts,
    /// How many of the driver's changes have been applied.
    count: u64,
    on_change: Option<OnChange>,
}

fn rule(unfinished_checksums: bool) -> ChecksumRule {
    if unfinished_checksums { ChecksumRule::Auto } else { ChecksumRule::Strict }
}

/// MTUs beyond 65,535 are cut: the stack sends shorter packets.
fn short(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

impl Known {
    pub(crate) fn new(granted: &Granted, tcp: TcpFacts, on_change: Option<OnChange>) -> Known {
        let Granted { mac, prefix, mtu, unfinished_checksums, .. } = *granted;
        let stack = stack::Facts {
            device: granted.device.clone(),
            mac,
            address: granted.local.ip(),
            prefix,
            mtu: short(mtu),
            checksum: rule(unfinished_checksums),
            tcp,
        };
        Known { stack, facts: Facts { mac, prefix, mtu, has_address: true, unfinished_checksums }, count: 0, on_change }
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts
    }

    /// Applies the driver's changes and tells the stack. Call [`Application::receivable`] before, and take no more
    /// packets than it says: those behind it may belong to later facts.
    pub(crate) fn learn(&mut self, now: u64, granted: &Granted, channel: &Application, stack: &mut Stack) {
        let (count, facts) = channel.facts();
        if count == self.count {
            return;
        }
        (self.count, self.facts) = (count, facts);
        let Facts { mac, prefix, mtu, unfinished_checksums, .. } = facts;
        let known = &mut self.stack;
        (known.mac, known.prefix, known.mtu, known.checksum) = (mac, prefix, short(mtu), rule(unfinished_checksums));
        stack.facts_changed(now, known);
        if let Some(OnChange(call)) = &self.on_change {
            call(&Change { local: granted.local, peer: granted.remote, facts });
        }
    }
}
