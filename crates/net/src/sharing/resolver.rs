//! The daemon's thread that asks the host for next hops of a shared device: an interface's process may not do that. The
//! kernel may make a caller wait for the end of a network change.

use crate::limits::SHARE_PENDING;
use driver::netlink::Netlink;
use driver::route::Neighbour;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The pause before the first check of a neighbour that the host asked for. It doubles each time.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The longest pause between two checks.
const LONGEST_LOOK: Duration = Duration::from_millis(200);

/// The host's verdict usually comes after 3 s. The interface does not wait longer than this.
const GIVE_UP: Duration = Duration::from_secs(5);

/// The host's answer about a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Frames go to this hardware address. `None`: the host cannot reach it by this device.
    Decided(Option<[u8; 6]>),
    /// The host is asking for the neighbour.
    Asked,
}

/// A destination that is checked again.
struct Pending {
    to: IpAddr,
    next: Instant,
    wait: Duration,
    until: Instant,
}

/// Asks the host for the next hop of each address in `questions`, and passes it to `tell`, until the sender is gone.
pub(crate) fn run(
    mut netlink: Netlink,
    device: u32,
    questions: &Receiver<IpAddr>,
    tell: &dyn Fn(IpAddr, Option<[u8; 6]>),
) {
    let mut pending: Vec<Pending> = Vec::new();
    loop {
        let now = Instant::now();
        let next = pending.iter().map(|pending| pending.next).min();
        let question = match next {
            // More questions wait while too many are pending.
            Some(next) if pending.len() >= SHARE_PENDING => {
                std::thread::sleep(next.saturating_duration_since(now));
                Err(RecvTimeoutError::Timeout)
            }
            Some(next) => questions.recv_timeout(next.saturating_duration_since(now)),
            None => questions.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let now = Instant::now();
        match question {
            Ok(to) if pending.iter().any(|pending| pending.to == to) => {}
            Ok(to) => match look(&mut netlink, device, to, true) {
                Ok(Verdict::Decided(mac)) => tell(to, mac),
                // A kernel error may be temporary.
                Ok(Verdict::Asked) | Err(_) => {
                    pending.push(Pending { to, next: now + FIRST_LOOK, wait: FIRST_LOOK, until: now + GIVE_UP });
                }
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        pending.retain_mut(|pending| {
            if pending.next > now {
                return true;
            }
            match look(&mut netlink, device, pending.to, false) {
                Ok(Verdict::Decided(mac)) => tell(pending.to, mac),
                Ok(Verdict::Asked) | Err(_) if now < pending.until => {
                    pending.wait = (2 * pending.wait).min(LONGEST_LOOK);
                    pending.next = now + pending.wait;
                    return true;
                }
                Ok(Verdict::Asked) | Err(_) => tell(pending.to, None),
            }
            false
        });
    }
}

/// `is_first`: the host's failure may be old, so make it try again.
fn look(netlink: &mut Netlink, device: u32, to: IpAddr, is_first: bool) -> io::Result<Verdict> {
    // A shared device only has IPv4 flows.
    let IpAddr::V4(to) = to else { return Ok(Verdict::Decided(None)) };
    let Some(route) = netlink.route_to(to)?.filter(|route| route.is_unicast && route.device == device) else {
        return Ok(Verdict::Decided(None));
    };
    let hop = route.gateway.unwrap_or(to);
    match netlink.neighbour(device, hop)? {
        Neighbour::Known { mac, is_old } => {
            if is_old {
                // The host confirms the neighbour, as for its own packets.
                netlink.use_neighbour(device, hop)?;
            }
            Ok(Verdict::Decided(Some(mac)))
        }
        Neighbour::Failed if !is_first => Ok(Verdict::Decided(None)),
        Neighbour::Failed | Neighbour::Absent => {
            netlink.use_neighbour(device, hop)?;
            Ok(Verdict::Asked)
        }
        Neighbour::Asked => Ok(Verdict::Asked),
    }
}
