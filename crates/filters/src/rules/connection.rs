//! What is kept of one flow: what rules keep of it, its application, and the last bytes of its streams.

use super::application::{self, Application};
use super::ftp;
use super::http::HttpShared;
use super::tcp_events::TcpEvents;
use super::transactions::Transactions;
use super::transfers::Transfer;
use base::limits::{RULES_STREAM_BYTES, RULES_WINDOW_BYTES};
use filter::prelude::*;
use packet::Flow;
use rules::FlowState;
use rules::engine::Piece;
use rules::names::App;

/// One flow.
pub(super) struct Connection {
    /// In the direction of the client.
    pub flow: Flow,
    pub state: FlowState,
    pub application: Application,
    pub transactions: Transactions,
    /// By side, the client's first.
    pub sides: [Side; 2],
    /// Number of its stream, of TCP.
    pub number: Option<u32>,
    /// Time of its latest packet, by the clock.
    pub last_seen: u64,
    /// Both sides were heard.
    pub heard: [bool; 2],
    /// What TCP has shown: SYN, SYN with ACK, and an ACK behind them.
    pub handshake: u8,
    /// It was joined midway, and who seemed to be the client is the server.
    turned: bool,
    /// Bytes are missing in a stream of it, which rules were not told.
    pub gap: bool,
    /// Bytes of its streams were not looked at, because a rule passed it.
    missed: bool,
    /// The list of flows that it stands in.
    pub list: usize,
    /// What rules may ask about its segments, where some do.
    pub events: Option<Box<TcpEvents>>,
    /// What is odd about its application, as of now.
    pub odd: Vec<&'static str>,
    /// Rules see no more of one of its streams, as of now.
    pub is_at_depth: bool,
    /// Bytes are missing in a stream of it.
    pub has_gaps: bool,
    /// Bytes that were counted for it.
    pub charged: usize,
    /// Something of it is to be shown to rules.
    pub touched: bool,
    #[cfg(feature = "quic")]
    quic: Option<Box<super::quic::Flow>>,
}

/// The last bytes of a stream.
#[derive(Default)]
pub(super) struct Side {
    bytes: Vec<u8>,
    /// Where they begin in the stream.
    start: u64,
    /// How many of them rules have seen.
    seen: usize,
    /// Nothing will come any more.
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
        // What rules have seen makes room, so that bytes move seldom.
        if self.bytes.len() + bytes.len() > 4 * RULES_WINDOW_BYTES && self.seen > RULES_WINDOW_BYTES {
            let drop = self.seen - RULES_WINDOW_BYTES;
            self.bytes.drain(..drop);
            self.start += drop as u64;
            self.seen -= drop;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Is there anything that rules have not seen?
    pub fn is_fresh(&self) -> bool {
        self.seen < self.bytes.len()
    }

    /// What rules look at.
    pub fn piece(&self) -> Piece<'_> {
        let from = self.seen.saturating_sub(RULES_WINDOW_BYTES);
        Piece { bytes: &self.bytes[from..], start: self.start + from as u64, seen: self.seen - from, grows: false }
    }

    /// Rules have seen it.
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
            heard: [false; 2],
            handshake: 0,
            turned: false,
            gap: false,
            missed: false,
            list: 0,
            events: None,
            odd: Vec::new(),
            is_at_depth: false,
            has_gaps: false,
            charged: 0,
            touched: false,
            #[cfg(feature = "quic")]
            quic: None,
        }
    }

    /// It carries a file of FTP, as was announced.
    pub fn begin_transfer(&mut self, transfer: &Transfer) {
        self.application = Application::FtpData(ftp::data(transfer, &mut self.transactions));
        (self.state.app, self.state.app_known) = (App::FtpData, true);
    }

    /// Takes a block of one of its streams. `keep`: rules look at streams.
    pub fn feed(&mut self, block: &Descriptor, keep: bool, shared: &mut HttpShared, cx: &mut Context<'_>) {
        if self.state.passed || self.state.dropped {
            self.missed = true;
            return;
        }
        if std::mem::take(&mut self.missed) {
            self.begin_anew(shared, cx);
            self.gap = true;
        }
        let midstream = cx.streams.get(block.class).is_some_and(|facts| facts.state == StreamState::Midstream);
        if midstream && !self.turned && self.state.stream_bytes == [0; 2] && block.len > 0 {
            let is_server = application::is_of_server(cx.rings.bytes(block), &self.flow);
            self.turned = is_server && block.class.direction() == 0;
            if self.turned {
                self.flow = self.flow.reversed();
                self.events.iter_mut().for_each(|events| events.turn());
            }
        }
        let mut block = *block;
        if self.turned {
            block.class = Class::of_stream(block.class.connection(), 1 - block.class.direction());
        }
        let block = &block;
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
        self.is_at_depth |= (before..self.state.stream_bytes[side]).contains(&RULES_STREAM_BYTES);
        let ended = block.has(Flags::LAST);
        if block.len > 0 || ended {
            // The side that did not show the application says its first bytes.
            if self.state.app_known && self.state.stream_bytes[side] == u64::from(block.len) && gap == 0 {
                let bytes = cx.rings.bytes(block);
                self.odd.extend(application::agrees(self.state.app, bytes, side == 0, &self.flow));
            }
            let Connection { application, flow, transactions, odd, .. } = self;
            if let Some(app) = application.feed(block, flow, shared, cx, transactions, odd) {
                self.state.app = app;
            }
            // Which side was first is not known of what was joined midway.
            if midstream {
                self.odd.retain(|event| *event != "applayer_wrong_direction_first_data");
            }
            if self.application.has_no_tls() {
                self.odd.push("applayer_no_tls_after_starttls");
            }
            self.state.app_known = self.application.is_known();
        }
        self.sides[side].ended |= ended;
    }

    /// Forgets what its streams said: bytes of them are not looked at.
    pub fn begin_anew(&mut self, shared: &mut HttpShared, cx: &mut Context<'_>) {
        let application = std::mem::replace(&mut self.application, Application::new());
        application.close(Class::of_stream(self.number.unwrap_or_default(), 0), shared, cx);
        (self.transactions, self.sides) = Default::default();
        (self.state.app, self.state.app_known) = (App::Unknown, false);
    }

    /// Rules have seen all there is.
    pub fn have_seen(&mut self) {
        self.sides.iter_mut().for_each(Side::see);
        self.transactions.sweep();
    }

    /// Bytes that it keeps, as far as others decide how many.
    pub fn kept_bytes(&self) -> usize {
        self.sides.iter().map(|side| side.bytes.capacity()).sum::<usize>()
            + self.transactions.kept_bytes()
            + self.application.kept_bytes()
    }

    /// The application of a datagram flow, and what the datagram says.
    pub fn datagram(&mut self, payload: &[u8], wire_len: u32, to_server: bool) {
        if self.state.passed || self.state.dropped || payload.is_empty() {
            return;
        }
        if self.state.app == App::Unknown {
            self.state.app = application::of_datagram(payload, wire_len, &self.flow);
            self.state.app_known = true;
        }
        #[cfg(feature = "quic")]
        if self.state.app == App::Quic {
            let quic = self.quic.get_or_insert_default();
            return quic.feed(payload, to_server, &mut self.transactions);
        }
        application::datagram(self.state.app, payload, to_server, &mut self.transactions);
    }
}
