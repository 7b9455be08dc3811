//! A flow: its rule state, its application, and the newest bytes of its streams.

use super::application::{self, Application};
use super::dcerpc::Calls;
use super::ftp;
use super::http::HttpShared;
use super::tcp_events::TcpEvents;
use super::tls;
use super::transactions::Transactions;
use base::limits::{RULES_STREAM_BYTES, RULES_WINDOW_BYTES};
use filter::prelude::*;
use packet::Flow;
use packet::frame::protocol;
use protocols::conversation::{self, Run};
use protocols::ftp::Transfer;
use protocols::probe;
use rules::FlowState;
use rules::engine::Piece;
use rules::names::App;

pub(super) struct Connection {
    /// In the direction of the client.
    pub flow: Flow,
    pub state: FlowState,
    pub application: Application,
    pub transactions: Transactions,
    /// By side; `[0]` is the client.
    pub sides: [Side; 2],
    /// Number of the stream, if TCP.
    pub number: Option<u32>,
    /// Clock time (not capture time) of the newest packet.
    pub last_seen: u64,
    /// How many flows began before it.
    pub serial: u64,
    /// It was joined midway, and is not read: see [`super::midstream`].
    pub midstream: bool,
    /// By side: a packet was seen.
    pub heard: [bool; 2],
    /// Handshake steps seen: 1 SYN, 2 SYN with ACK, 3 final ACK.
    pub handshake: u8,
    /// Stream bytes are missing, and rules were not told yet.
    pub gap: bool,
    /// Stream bytes were skipped because a rule passes the flow.
    missed: bool,
    /// The list of the flow table that has the flow.
    pub list: usize,
    /// TCP stream events, if rules use them.
    pub events: Option<Box<TcpEvents>>,
    /// New application events.
    pub odd: Vec<&'static str>,
    /// Some stream bytes are missing.
    pub has_gaps: bool,
    /// Bytes charged to the memory limit.
    pub charged: usize,
    /// The flow has news for rules.
    pub touched: bool,
    /// TLS that begins behind another protocol; `None`: there is none, or its openings were read.
    tls: Option<tls::Openings>,
    /// Calls of DCE/RPC in datagrams.
    calls: Option<Box<Calls>>,
    #[cfg(feature = "quic")]
    quic: Option<Box<super::quic::Flow>>,
}

/// The newest bytes of a stream.
#[derive(Default)]
pub(super) struct Side {
    bytes: Vec<u8>,
    /// Stream offset of the first byte.
    start: u64,
    /// Rules have seen the first `seen` bytes.
    seen: usize,
    /// The stream has ended.
    ended: bool,
}

impl Side {
    fn add(&mut self, bytes: &[u8], gap: u64) {
        let at = self.start + self.bytes.len() as u64;
        if at >= RULES_STREAM_BYTES {
            return;
        }
        let bytes = &bytes[..bytes.len().min((RULES_STREAM_BYTES - at) as usize)];
        if gap > 0 {
            self.start += self.bytes.len() as u64 + gap;
            self.bytes.clear();
            self.seen = 0;
        }
        // Drop seen bytes in large steps, so that bytes are seldom moved.
        if self.bytes.len() + bytes.len() > 4 * RULES_WINDOW_BYTES && self.seen > RULES_WINDOW_BYTES {
            let drop = self.seen - RULES_WINDOW_BYTES;
            self.bytes.drain(..drop);
            self.start += drop as u64;
            self.seen -= drop;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether there are bytes that rules have not seen.
    pub fn is_fresh(&self) -> bool {
        self.seen < self.bytes.len()
    }

    /// The window that rules inspect.
    pub fn piece(&self) -> Piece<'_> {
        let from = self.seen.saturating_sub(RULES_WINDOW_BYTES);
        Piece { bytes: &self.bytes[from..], start: self.start + from as u64, seen: self.seen - from, grows: false }
    }

    /// Marks all bytes as seen.
    pub fn see(&mut self) {
        self.seen = self.bytes.len();
        if self.ended {
            self.start += self.bytes.len() as u64;
            (self.bytes, self.seen) = (Vec::new(), 0);
        }
    }
}

impl Connection {
    pub fn new(flow: Flow, start: u64) -> Connection {
        Connection {
            flow,
            state: FlowState::new(start),
            application: Application::new(),
            transactions: Transactions::default(),
            sides: Default::default(),
            number: None,
            last_seen: 0,
            serial: 0,
            midstream: false,
            heard: [false; 2],
            handshake: 0,
            gap: false,
            missed: false,
            list: 0,
            events: None,
            odd: Vec::new(),
            has_gaps: false,
            charged: 0,
            touched: false,
            tls: (flow.protocol == protocol::TCP).then(tls::Openings::default),
            calls: None,
            #[cfg(feature = "quic")]
            quic: None,
        }
    }

    /// Makes the flow an announced FTP data connection.
    pub fn begin_transfer(&mut self, transfer: &Transfer) {
        self.application = Application::FtpData(ftp::data(transfer, &mut self.transactions));
        (self.state.app, self.state.app_known) = (App::FtpData, true);
    }

    /// Takes a stream block. `keep`: rules inspect streams.
    pub fn feed(&mut self, block: &Descriptor, keep: bool, shared: &mut HttpShared, cx: &mut Context<'_>) {
        if self.state.passed || self.state.dropped {
            self.missed = true;
            return;
        }
        if std::mem::take(&mut self.missed) {
            self.begin_anew(shared);
            self.gap = true;
        }
        let midstream = cx.streams.get(block.class).is_some_and(|facts| facts.state == StreamState::Midstream);
        let side = usize::from(block.class.direction());
        let gap = u64::from(block.gap());
        self.gap |= gap > 0;
        self.has_gaps |= gap > 0;
        if keep {
            let bytes = cx.rings.bytes(block);
            self.sides[side].add(bytes, gap);
        }
        let before = self.state.stream_bytes[side];
        self.state.stream_bytes[side] += u64::from(block.len) + gap;
        if (before..self.state.stream_bytes[side]).contains(&RULES_STREAM_BYTES) {
            self.odd.push("reassembly_depth_reached");
        }
        let ended = block.has(Flags::LAST);
        // A gap may come without bytes, before those behind it.
        if block.len > 0 || ended || gap > 0 {
            // These are the first bytes of the side that did not show the application.
            if self.state.app_known && self.state.stream_bytes[side] == u64::from(block.len) && gap == 0 {
                let bytes = cx.rings.bytes(block);
                self.odd.extend(application::agrees(self.state.app, bytes, side == 0, &self.flow));
            }
            let Connection { application, flow, transactions, odd, .. } = self;
            if let Some(app) = application.feed(block, flow, shared, cx, transactions, odd) {
                self.state.app = app;
            }
            self.look_for_tls(block, cx);
            // If the capture began midway, which side spoke first is unknown.
            if midstream {
                self.odd.retain(|event| *event != "applayer_wrong_direction_first_data");
            }
            self.state.app_known = self.application.is_known();
        }
        self.sides[side].ended |= ended;
    }

    /// Looks for TLS behind another protocol, such as behind STARTTLS: `alert tls` is about it, too.
    fn look_for_tls(&mut self, block: &Descriptor, cx: &Context<'_>) {
        let side = usize::from(block.class.direction());
        if self.application.is_tls() {
            self.tls = None;
        } else if let Some(tls) = &mut self.tls {
            tls.feed(cx.rings.bytes(block), side == 0, block.gap(), &mut self.transactions);
            if tls.are_over() {
                self.tls = None;
            }
        }
    }

    /// Restarts detection, because stream bytes were skipped.
    pub fn begin_anew(&mut self, shared: &mut HttpShared) {
        let application = std::mem::replace(&mut self.application, Application::new());
        application.close(shared);
        (self.transactions, self.sides) = Default::default();
        (self.state.app, self.state.app_known) = (App::Unknown, false);
        self.tls = self.number.map(|_| tls::Openings::default());
    }

    /// Marks everything as seen.
    pub fn have_seen(&mut self) {
        self.sides.iter_mut().for_each(Side::see);
        self.transactions.sweep();
    }

    /// Memory that peers control, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.sides.iter().map(|side| side.bytes.capacity()).sum::<usize>()
            + self.transactions.kept_bytes()
            + self.application.kept_bytes()
            + self.tls.as_ref().map_or(0, |tls| tls.kept_bytes())
    }

    /// Detects the application of a datagram flow, and parses the datagram.
    pub fn datagram(&mut self, payload: &[u8], wire_len: u32, to_server: bool) {
        if self.state.passed || self.state.dropped || payload.is_empty() {
            return;
        }
        if self.state.app == App::Unknown {
            self.state.app = probe::datagram(payload, wire_len, &self.flow);
            self.state.app_known = true;
        }
        #[cfg(feature = "quic")]
        if self.state.app == App::Quic {
            let quic = self.quic.get_or_insert_default();
            return quic.feed(payload, to_server, &mut self.transactions);
        }
        if self.state.app == App::Dcerpc {
            let calls = self.calls.get_or_insert_with(|| Box::new(Calls::new(&self.flow)));
            let run = Run { bytes: payload, time: 0 };
            return calls.feed(conversation::Side::to_server(to_server), run, 0, &mut self.transactions);
        }
        application::datagram(self.state.app, &self.flow, payload, wire_len, to_server, &mut self.transactions);
    }
}
