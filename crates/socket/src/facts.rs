//! The properties of a flow's interface and address: the daemon sends them when it opens the flow, and the driver
//! reports changes.

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
    /// Address and port of the peer, if there is one.
    pub peer: Option<SocketAddr>,
    /// The facts from now on.
    pub facts: Facts,
}

/// Called after a change, by a thread that works for the socket, before the socket does anything else. So the function
/// must neither wait nor use the socket.
#[derive(Clone)]
pub struct OnChange(Arc<dyn Fn(&Change) + Send + Sync>);

impl OnChange {
    /// Calls this function.
    pub fn new(call: impl Fn(&Change) + Send + Sync + 'static) -> OnChange {
        OnChange(Arc::new(call))
    }
}

impl fmt::Debug for OnChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnChange(..)")
    }
}

/// Equal if they are the same function.
impl PartialEq for OnChange {
    fn eq(&self, other: &OnChange) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OnChange {}

/// The facts of one flow, as known to its socket and its stack.
#[derive(Debug)]
pub(crate) struct Known {
    /// For the stack.
    pub(crate) stack: stack::Facts,
    facts: Facts,
    /// Changes that the driver reported, as far as they are known here.
    count: u64,
    on_change: Option<OnChange>,
}

fn rule(unfinished_checksums: bool) -> ChecksumRule {
    if unfinished_checksums { ChecksumRule::Auto } else { ChecksumRule::Strict }
}

/// The MTU for the stack. If a device takes longer packets, the stack sends shorter ones.
fn short(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

impl Known {
    /// The facts when the flow was opened.
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

    /// The present facts.
    pub(crate) fn facts(&self) -> Facts {
        self.facts
    }

    /// Learns the changes that the driver reported since the last call, and tells the stack. Call [`Application::receivable`]
    /// before it, and take no more packets than that returned: packets behind those may belong to later facts.
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
