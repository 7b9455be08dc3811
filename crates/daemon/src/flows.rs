//! Answers a client's questions about interfaces and flows. Crate `net` has the interfaces; this file asks the policy,
//! and keeps the flows of one client.

use crate::policy::{Peer, Policy};
use buffer::control::Message;
use capture::protocol::Answer;
use capture::{CaptureError, CaptureErrorKind};
use net::{NetError, NetErrorKind, Networks, ShareLimits};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of an answer without the states in it, and a few more.
const ANSWER_BYTES: usize = 16;

/// The flows of one client: they end when this is dropped.
#[derive(Default)]
pub(crate) struct Flows {
    /// `None` before the first flow.
    client: Option<net::Client>,
}

/// An answer, and the file descriptors that go with it.
type Answered = Result<(flow::Answer, Vec<OwnedFd>), CaptureError>;

fn denied(text: impl Into<String>) -> CaptureError {
    CaptureError::new(CaptureErrorKind::Denied, text)
}

/// Converts an error for clients. In use becomes `Cannot`, to tell it from `Full`.
fn refused(error: NetError) -> CaptureError {
    let kind = match error.kind {
        NetErrorKind::Absent => CaptureErrorKind::Absent,
        NetErrorKind::InUse => CaptureErrorKind::Cannot,
        NetErrorKind::Denied => CaptureErrorKind::Denied,
        NetErrorKind::Full => CaptureErrorKind::Full,
        NetErrorKind::Request => CaptureErrorKind::Request,
        NetErrorKind::System => CaptureErrorKind::System,
    };
    CaptureError::new(kind, error.text)
}

/// The part of an interface's wire that a peer may have for a flow. `asked`: the device that the peer named.
fn permit(policy: &Policy, peer: &Peer, asked: Option<&str>, device: &str) -> Result<ShareLimits, NetError> {
    policy.allows_flows(peer, Some(device)).map_err(|text| {
        let text = match asked {
            Some(_) => text,
            None => format!("{text}; the flow named no device, and this is the one it would take"),
        };
        NetError::new(NetErrorKind::Denied, text)
    })
}

impl Flows {
    /// Answers the peer that owns these flows.
    ///
    /// # Errors
    ///
    /// `Denied`: the policy does not let the peer do this. `net` reports all other errors.
    pub(crate) fn answer(
        &mut self,
        networks: &Arc<Networks>,
        policy: &Policy,
        peer: &Peer,
        question: &flow::Question,
        fds: Vec<OwnedFd>,
    ) -> Answered {
        let done = |done: Result<(), NetError>| match done {
            Ok(()) => Ok((flow::Answer::Done, Vec::new())),
            Err(error) => Err(refused(error)),
        };
        match question {
            flow::Question::Up(_) | flow::Question::Down(_) | flow::Question::Change(..) | flow::Question::Move(..)
                if !policy.may_manage(peer) =>
            {
                Err(denied(
                    "only root may make a device an interface of Streamline, change the interface, or give the device back to the host",
                ))
            }
            flow::Question::Up(open) => done(networks.up(open)),
            flow::Question::Down(device) => done(networks.down(device)),
            flow::Question::Change(device, change) => done(networks.change(device, change)),
            flow::Question::Move(old, new) => done(networks.move_to(old, new)),
            flow::Question::Open(open) => self.open(networks, policy, peer, open),
            flow::Question::Listen(open) => self.listen(networks, policy, peer, open),
            flow::Question::Accept(channel, most) => match &mut self.client {
                Some(client) => {
                    let (granted, fds) = client.accept(*channel, *most).map_err(refused)?;
                    Ok((flow::Answer::Accepted(granted), fds))
                }
                None => Err(CaptureError::new(CaptureErrorKind::Absent, "this client has no listener")),
            },
            flow::Question::Close(channel) => match &mut self.client {
                Some(client) => done(client.close(*channel)),
                None => Err(CaptureError::new(CaptureErrorKind::Absent, "this client has no flow")),
            },
            flow::Question::Share(flow, share) => {
                let user = if policy.may_manage(peer) { None } else { Some(peer.user) };
                let permit = |device: &str| policy.allows_flows(peer, Some(device)).ok();
                done(networks.share(user, *flow, share, &permit))
            }
            flow::Question::Trace(flow, snap) => {
                let user = if policy.may_manage(peer) { None } else { Some(peer.user) };
                let client = self.client.get_or_insert_with(|| networks.client(peer.process, peer.user));
                let (granted, fds) = client.trace(user, *flow, *snap).map_err(refused)?;
                Ok((flow::Answer::Granted(granted), fds))
            }
            flow::Question::Reclaim => done(Ok(())),
            flow::Question::Claim(channels) => self.claim(networks, policy, peer, channels, fds),
            flow::Question::Adopt => {
                Err(denied("only a process of the daemon's own user has an interface; use `streamline net up`"))
            }
            flow::Question::State => {
                let user = if policy.may_manage(peer) { None } else { Some(peer.user) };
                let mut state = networks.state(user);
                flow::fit(&mut state, Answer::BYTES - ANSWER_BYTES);
                Ok((flow::Answer::State(state), Vec::new()))
            }
        }
    }

    fn open(&mut self, networks: &Arc<Networks>, policy: &Policy, peer: &Peer, open: &flow::OpenFlow) -> Answered {
        // Before any interface is changed or named in an answer.
        policy.allows_flows(peer, open.device.as_deref()).map_err(denied)?;
        let client = self.client.get_or_insert_with(|| networks.client(peer.process, peer.user));
        let permit = |device: &str| permit(policy, peer, open.device.as_deref(), device);
        let (granted, fds) = client.open(open, &permit).map_err(refused)?;
        Ok((flow::Answer::Granted(granted), fds))
    }

    /// Gives this client the flows back that it had at an earlier daemon.
    fn claim(
        &mut self,
        networks: &Arc<Networks>,
        policy: &Policy,
        peer: &Peer,
        channels: &[u32],
        fds: Vec<OwnedFd>,
    ) -> Answered {
        if self.client.is_some() {
            let text = "this connection has flows, or had some; connect again to claim others";
            return Err(CaptureError::new(CaptureErrorKind::Request, text));
        }
        let Ok([page]) = <[OwnedFd; 1]>::try_from(fds) else {
            let text = "a claim has one file descriptor beside it: the page of the doorbells (ask `Reclaim` first)";
            return Err(CaptureError::new(CaptureErrorKind::Request, text));
        };
        let permit = |device: &str| permit(policy, peer, None, device);
        self.client = Some(networks.claim(peer.process, peer.user, &page, channels, &permit).map_err(refused)?);
        Ok((flow::Answer::Done, Vec::new()))
    }

    fn listen(
        &mut self,
        networks: &Arc<Networks>,
        policy: &Policy,
        peer: &Peer,
        open: &flow::OpenListener,
    ) -> Answered {
        policy.allows_flows(peer, open.device.as_deref()).map_err(denied)?;
        let client = self.client.get_or_insert_with(|| networks.client(peer.process, peer.user));
        let permit = |device: &str| permit(policy, peer, open.device.as_deref(), device);
        let (listening, fds) = client.listen(open, &permit).map_err(refused)?;
        Ok((flow::Answer::Listening(listening), fds))
    }

    /// Closes the flows or the listener of an answer that its client did not get. Gives whether there were any.
    pub(crate) fn take_back(&mut self, answer: &flow::Answer) -> bool {
        let (has_bells, channels) = match answer {
            flow::Answer::Granted(granted) => (granted.has_bells, vec![granted.channel]),
            flow::Answer::Listening(listening) => (listening.has_bells, vec![listening.channel]),
            flow::Answer::Accepted(granted) => (false, granted.iter().map(|granted| granted.channel).collect()),
            flow::Answer::Done | flow::Answer::State(_) => return false,
        };
        if has_bells {
            // The doorbells went with this answer. There is no other flow, and the next one has to bring them again.
            self.client = None;
        } else if let Some(client) = &mut self.client {
            for channel in channels {
                // A channel that has gone by itself needs no closing.
                let _ = client.close(channel);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{OpenFlow, OpenInterface, OpenListener, Question};
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    fn peer(user: u32) -> Peer {
        Peer { process: 1, user, groups: vec![] }
    }

    fn open(device: Option<&str>) -> Question {
        Question::Open(OpenFlow::new(device.map(String::from), 17, NOWHERE, None))
    }

    fn listen(device: Option<&str>) -> Question {
        let OpenFlow { send_records, send_bytes, receive_buffers, buffer_bytes, .. } =
            OpenFlow::new(None, 6, NOWHERE, None);
        Question::Listen(OpenListener {
            device: device.map(String::from),
            local: NOWHERE,
            backlog: 1,
            window: 65535,
            window_shift: 0,
            share: None,
            send_records,
            send_bytes,
            receive_buffers,
            buffer_bytes,
        })
    }

    fn up(device: &str, addresses: Vec<(IpAddr, u8)>) -> Question {
        let (how, gateways, rate, count_gaps) = (None, vec![], None, false);
        Question::Up(OpenInterface {
            device: device.into(),
            how,
            addresses,
            gateways,
            rate,
            count_gaps,
            dhcp: false,
            share: false,
        })
    }

    fn change(device: &str) -> Question {
        Question::Change(device.into(), flow::Change::AddAddress(Ipv4Addr::new(10, 0, 0, 2).into(), 24))
    }

    /// No interface is up here.
    #[test]
    fn who_may_not_hears_so_and_who_may_hears_what_there_is() {
        use CaptureErrorKind::{Absent, Denied};
        let networks = Arc::new(Networks::new());
        let policy = Policy::without_file();
        let (root, stranger) = (peer(0), peer(54_321));
        let rows = [
            (&stranger, up("nosuch0", vec![(Ipv4Addr::new(10, 0, 0, 2).into(), 24)]), Denied, "only root may"),
            (&stranger, Question::Down("nosuch0".into()), Denied, "only root may"),
            (&stranger, change("nosuch0"), Denied, "only root may"),
            (&stranger, Question::Move("nosuch0".into(), "nosuch1".into()), Denied, "only root may"),
            (&stranger, open(Some("nosuch0")), Denied, "user 54321 may use no device here"),
            (&stranger, open(None), Denied, "user 54321 may use no device here"),
            (&stranger, listen(Some("nosuch0")), Denied, "user 54321 may use no device here"),
            (&stranger, listen(None), Denied, "user 54321 may use no device here"),
            (&stranger, Question::Accept(0, 16), Absent, "no listener"),
            (&stranger, Question::Close(0), Absent, "no flow"),
            (&root, Question::Down("nosuch0".into()), Absent, "nosuch0"),
            (&root, change("nosuch0"), Absent, "`nosuch0` is not up"),
            (&root, Question::Move("nosuch0".into(), "nosuch1".into()), Absent, "`nosuch0` is not up"),
            (&root, open(Some("nosuch0")), Absent, "nosuch0"),
            (&root, open(None), Absent, ""),
            (&root, listen(Some("nosuch0")), Absent, "nosuch0"),
            (&root, listen(None), Absent, ""),
            (&root, Question::Close(0), Absent, ""),
        ];
        for (peer, question, kind, told) in rows {
            let answer = Flows::default().answer(&networks, &policy, peer, &question, Vec::new());
            let error = answer.expect_err(&format!("{question:?}"));
            assert!(error.kind == kind && error.text.contains(told), "{question:?}: {error:?}");
        }
        for peer in [root, stranger] {
            let (answer, fds) =
                Flows::default().answer(&networks, &policy, &peer, &Question::State, Vec::new()).unwrap();
            assert_eq!((answer, fds.len()), (flow::Answer::State(vec![]), 0));
        }
    }

    #[test]
    fn errors_of_networks_keep_apart_on_their_way() {
        let rows = [
            (NetErrorKind::Absent, CaptureErrorKind::Absent),
            (NetErrorKind::InUse, CaptureErrorKind::Cannot),
            (NetErrorKind::Denied, CaptureErrorKind::Denied),
            (NetErrorKind::Full, CaptureErrorKind::Full),
            (NetErrorKind::Request, CaptureErrorKind::Request),
            (NetErrorKind::System, CaptureErrorKind::System),
        ];
        for (kind, expected) in rows {
            let error = refused(NetError { kind, text: "why".into() });
            assert_eq!((error.kind, error.text.as_str()), (expected, "why"));
        }
    }
}
