//! Runs the parser of a flow's application, which the first bytes of each side tell.

use super::http::{Http, HttpShared};
use super::transactions::Transactions;
use super::{dcerpc, dns, ftp, http2, small, smb, smtp, talks, tls, websocket};
use base::limits::RULES_EARLY_BYTES;
use filter::prelude::*;
use packet::Flow;
use packet::frame::protocol;
use protocols::app::App;
use protocols::conversation::{Run, Side};
use protocols::ftp::Transfer;
use protocols::http::Input;
use protocols::probe::{self, First, Says};
use protocols::proxy::{Proxy, Read};
use rules::names::Buffer;
use std::net::SocketAddr;

/// First bytes of a side that decide.
const PREFIX_BYTES: usize = 256;

/// The parser of a flow's application.
pub(super) enum Application {
    /// Not detected yet: the first bytes of each side.
    Fresh([Prefix; 2]),
    Http(Box<Http>),
    Http2(Box<http2::Connection>),
    WebSocket(Box<websocket::Connection>),
    Dcerpc(Box<dcerpc::Calls>),
    Smb(Box<smb::Connection>),
    Dns(dns::Stream),
    Tls(Box<tls::Stream>),
    Smtp(Box<smtp::Stream>),
    Ftp(Box<ftp::Stream>),
    /// A file of FTP, with its transaction.
    FtpData(u64),
    /// Any protocol that rules read by its table of facts.
    Talk(Box<dyn talks::Stream>),
    /// An application without a parser.
    Other,
}

/// What a side sent before the application was detected.
#[derive(Default)]
pub(super) struct Prefix {
    bytes: Vec<u8>,
    /// Number of bytes behind them, which were not kept.
    missed: u64,
    /// The header of a proxy with which the stream begins.
    proxy: Option<Proxy>,
    /// Number of bytes missing before them.
    gap: u32,
}

impl Prefix {
    /// Keeps bytes up to the limit, without the header of a proxy in front. Returns how many bytes this header had.
    fn add(&mut self, bytes: &[u8], to_server: bool) -> usize {
        let header = if to_server { self.behind_proxy(bytes) } else { 0 };
        let bytes = &bytes[header..];
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        // Servers ignore empty lines before a request: two bytes stand for all of them.
        let ends = match to_server && self.bytes.iter().all(is_end) {
            true => bytes.iter().take_while(|byte| is_end(byte)).count(),
            false => 0,
        };
        let bytes = &bytes[ends.saturating_sub(2_usize.saturating_sub(self.bytes.len()))..];
        let room = if self.missed > 0 { 0 } else { RULES_EARLY_BYTES.saturating_sub(self.bytes.len()) };
        let kept = bytes.len().min(room);
        self.bytes.extend_from_slice(&bytes[..kept]);
        self.missed += (bytes.len() - kept) as u64;
        header
    }

    /// How many of these bytes belong to the header of a proxy.
    fn behind_proxy(&mut self, bytes: &[u8]) -> usize {
        if self.bytes.is_empty() && self.proxy.is_none() {
            self.proxy = Proxy::begin(bytes);
        }
        let Some(proxy) = &mut self.proxy else { return 0 };
        let used = match proxy.read(bytes) {
            Read::More => return bytes.len(),
            Read::Done(used) => used,
            Read::No => 0,
        };
        self.proxy = None;
        used
    }

    /// The bytes that decide.
    fn front(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(PREFIX_BYTES)]
    }
}

impl Application {
    pub fn new() -> Application {
        Application::Fresh(Default::default())
    }

    /// Whether detection has ended.
    pub fn is_known(&self) -> bool {
        !matches!(self, Application::Fresh(_))
    }

    /// Whether its parser reads TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Application::Tls(_))
    }

    /// Whether no byte is known yet.
    pub fn is_new(&self) -> bool {
        matches!(self, Application::Fresh(prefixes) if prefixes.iter().all(|prefix| prefix.bytes.is_empty()))
    }

    /// Takes the FTP data connections announced since the last call.
    pub fn announced(&mut self) -> impl Iterator<Item = (SocketAddr, Transfer)> {
        let ftp = if let Application::Ftp(ftp) = self { Some(ftp) } else { None };
        ftp.into_iter().flat_map(|ftp| ftp.announced())
    }

    pub fn feed(
        &mut self,
        block: &Descriptor,
        flow: &Flow,
        shared: &mut HttpShared,
        cx: &mut Context<'_>,
        to: &mut Transactions,
        odd: &mut Vec<&'static str>,
    ) -> Option<App> {
        if let Application::Fresh(prefixes) = self {
            let side = usize::from(block.class.direction());
            if block.gap() > 0 {
                // The bytes behind a gap show the application by themselves.
                to.unseen |= !prefixes[side].bytes.is_empty();
                prefixes[side] = Prefix { gap: block.gap(), ..Prefix::default() };
            }
            let (had, missed) = (prefixes[side].bytes.len(), prefixes[side].missed);
            let header = prefixes[side].add(cx.rings.bytes(block), side == 0) as u32;
            let app = match probe::stream(&First { bytes: prefixes[side].front(), to_server: side == 0, flow }) {
                Says::Is(app) => app,
                Says::No if !prefixes[1 - side].bytes.is_empty() || block.has(Flags::LAST) => {
                    // The other side had its chance to show the application.
                    App::Unknown
                }
                Says::No | Says::More => {
                    // A long greeting decides nothing: its parser may still identify the application.
                    if prefixes.iter().all(|prefix| prefix.bytes.len() >= PREFIX_BYTES) {
                        odd.push("applayer_proto_detection_skipped");
                        *self = Application::of(App::Unknown, flow);
                    }
                    return None;
                }
            };
            let prefixes = std::mem::take(prefixes);
            odd.extend(agrees(app, prefixes[1 - side].front(), side == 1, flow));
            if side == 1 && prefixes[0].bytes.is_empty() && matches!(app, App::Http1 | App::Tls) {
                odd.push("applayer_wrong_direction_first_data");
            }
            *self = Application::of(app, flow);
            let mut changed = None;
            // Replay kept bytes: first the other side's, then this side's from before the current block.
            let [other, own] = [1 - side, side].map(|side| &prefixes[side]);
            // A gap of this block is fed with it.
            let own_gap = if block.gap() > 0 { 0 } else { own.gap };
            for (number, prefix, missed, gap) in
                [(1 - side, &other.bytes[..], other.missed, other.gap), (side, &own.bytes[..had], missed, own_gap)]
            {
                let copy = match prefix {
                    // A gap without bytes behind it so far.
                    [] => (gap > 0).then(|| block.part(0, 0)),
                    _ => cx.rings.append_copy(cx.own, &[prefix]),
                };
                if let Some(copy) = copy {
                    let mut copy = Descriptor { time: block.time, ..copy };
                    copy.class = Class::of_stream(block.class.connection(), number as u8);
                    copy.set_wire(copy.len.saturating_add(gap));
                    copy.set_flags(if gap > 0 { Flags::GAP_BEFORE } else { Flags::FIRST });
                    changed = self.feed_known(&copy, flow, shared, cx, to, odd).or(changed);
                    if missed > 0 && app != App::Unknown {
                        to.unseen = true;
                        cx.count("bytes of rules before their application was known", missed);
                        let mut gap = copy.part(copy.len, 0);
                        gap.set_wire(u32::try_from(missed).unwrap_or(u32::MAX));
                        gap.set_flags(Flags::GAP_BEFORE);
                        changed = self.feed_known(&gap, flow, shared, cx, to, odd).or(changed);
                    }
                }
            }
            let mut block = if header > 0 { block.part(header, block.len - header) } else { *block };
            if had > 0 {
                let flags = block.flags();
                block.set_flags(Flags::NONE);
                for flag in [Flags::LAST, Flags::TRUNCATED, Flags::GAP_BEFORE] {
                    if flags.has(flag) {
                        block.add_flags(flag);
                    }
                }
            }
            changed = self.feed_known(&block, flow, shared, cx, to, odd).or(changed);
            return Some(changed.unwrap_or(app));
        }
        self.feed_known(block, flow, shared, cx, to, odd)
    }

    /// Feeds the parser. Returns the new application if the connection changed to another one.
    fn feed_known(
        &mut self,
        block: &Descriptor,
        flow: &Flow,
        shared: &mut HttpShared,
        cx: &mut Context<'_>,
        to: &mut Transactions,
        odd: &mut Vec<&'static str>,
    ) -> Option<App> {
        let to_server = block.class.direction() == 0;
        let (side, run) = (Side::to_server(to_server), Run { bytes: cx.rings.bytes(block), time: block.time });
        match self {
            Application::Http(http) => {
                let facts = cx.streams.get(block.class);
                let is_midstream = facts.is_some_and(|facts| facts.state == StreamState::Midstream);
                let input = Input {
                    bytes: run.bytes,
                    time: run.time,
                    gap: block.gap(),
                    is_first: block.has(Flags::FIRST),
                    is_last: block.has(Flags::LAST),
                    is_truncated: block.has(Flags::TRUNCATED),
                    more_follows: false,
                };
                if let Some((offset, next)) = http.feed(side, &input, is_midstream, shared, to) {
                    return self.upgrade(block, offset, next, flow, shared, cx, to, odd);
                }
            }
            Application::Http2(http2) => {
                let before = http2.is_dns();
                http2.feed(side, run, block.gap(), &mut shared.shared, to);
                return (http2.is_dns() && !before).then_some(App::Doh2);
            }
            Application::WebSocket(socket) => socket.feed(side, run, block.gap(), to),
            Application::Dcerpc(calls) => calls.feed(side, run, block.gap(), to),
            Application::Smb(smb) => smb.feed(side, run, block.gap(), to),
            Application::Dns(dns) => return dns.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Tls(tls) => tls.feed(cx.rings.bytes(block), to_server, block.gap(), to),
            Application::Smtp(smtp) => {
                smtp.feed(side, run, block.gap(), to, odd);
                if block.has(Flags::LAST) && to_server {
                    smtp.end(block.time, to);
                }
            }
            Application::Ftp(ftp) => ftp.feed(side, run, block.gap() > 0, to),
            Application::FtpData(id) => {
                to.append_body(*id, Buffer::FILE_DATA, to_server, cx.rings.bytes(block));
                if block.has(Flags::LAST) {
                    to.complete(*id, to_server);
                }
            }
            Application::Talk(talk) => talk.feed(side, run, block.gap(), to),
            Application::Fresh(_) | Application::Other => {}
        }
        None
    }

    /// Continues with the application that HTTP was upgraded to. It begins at `offset` in the block.
    #[expect(clippy::too_many_arguments, reason = "those of feed, and where it goes on")]
    fn upgrade(
        &mut self,
        block: &Descriptor,
        offset: u32,
        next: Option<App>,
        flow: &Flow,
        shared: &mut HttpShared,
        cx: &mut Context<'_>,
        to: &mut Transactions,
        odd: &mut Vec<&'static str>,
    ) -> Option<App> {
        // Detect what CONNECT tunnels. The recursion ends: the tunnelled connection has no answered CONNECT yet.
        let (app, new) = match (&*self, next) {
            (_, None) => (App::Unknown, Application::new()),
            (Application::Http(http), Some(App::Http2)) => {
                let request = http.upgraded().and_then(|id| to.find(id)).cloned();
                (App::Http2, Application::Http2(Box::new(http2::Connection::upgraded(request.as_ref(), to))))
            }
            (_, Some(app)) => (app, Application::of(app, flow)),
        };
        std::mem::replace(self, new).close(shared);
        let mut rest = block.part(offset, block.len.saturating_sub(offset));
        if rest.len == 0 {
            return (app != App::Unknown).then_some(app);
        }
        rest.set_flags(Flags::FIRST);
        if block.has(Flags::LAST) {
            rest.add_flags(Flags::LAST);
        }
        self.feed(&rest, flow, shared, cx, to, odd).or((app != App::Unknown).then_some(app))
    }

    fn of(app: App, flow: &Flow) -> Application {
        match app {
            App::Http1 => Application::Http(Box::default()),
            App::Http2 => Application::Http2(Box::default()),
            App::WebSocket => Application::WebSocket(Box::default()),
            App::Smb => Application::Smb(Box::default()),
            App::Dcerpc => Application::Dcerpc(Box::new(dcerpc::Calls::new(flow))),
            App::Dns | App::Llmnr => Application::Dns(dns::Stream::new(app, true)),
            App::Tls => Application::Tls(Box::default()),
            App::Smtp => Application::Smtp(Box::default()),
            App::Ftp => Application::Ftp(Box::new(ftp::Stream::new(flow.source, flow.target))),
            app => match (talks::stream(app, flow), protocols::dns::of_ports(flow)) {
                (Some(talk), _) => Application::Talk(talk),
                // Messages may stand behind something else.
                (None, Some(app)) => Application::Dns(dns::Stream::new(app, false)),
                (None, None) => Application::Other,
            },
        }
    }

    /// Memory that peers control, in bytes.
    pub fn kept_bytes(&self) -> usize {
        match self {
            Application::Fresh(prefixes) => prefixes.iter().map(|prefix| prefix.bytes.capacity()).sum(),
            Application::Http(http) => http.kept_bytes(),
            Application::Dns(dns) => dns.kept_bytes(),
            Application::Tls(tls) => tls.kept_bytes(),
            Application::Smtp(smtp) => smtp.kept_bytes(),
            Application::Ftp(ftp) => ftp.kept_bytes(),
            Application::Talk(talk) => talk.kept_bytes(),
            // These report their bytes in `Transactions::reader_bytes`.
            Application::Http2(_) | Application::WebSocket(_) | Application::Dcerpc(_) | Application::Smb(_) => 0,
            Application::FtpData(_) | Application::Other => 0,
        }
    }

    pub fn close(self, shared: &mut HttpShared) {
        match self {
            Application::Http(http) => http.close(&mut shared.shared),
            Application::Http2(http2) => http2.close(&mut shared.shared),
            _ => {}
        }
    }
}

/// One side has shown the application: returns an event if the other side shows another one, or no known one.
pub(super) fn agrees(app: App, bytes: &[u8], to_server: bool, flow: &Flow) -> Option<&'static str> {
    // Both sides of these begin with known bytes.
    let both = matches!(app, App::Http1 | App::Tls | App::Ssh | App::Sip | App::Rfb);
    if !both || bytes.is_empty() {
        return None;
    }
    match probe::stream(&First { bytes, to_server, flow }) {
        Says::Is(other) if other != app => Some("applayer_mismatch_protocol_both_directions"),
        Says::No => Some("applayer_detect_protocol_only_one_direction"),
        _ => None,
    }
}

/// Whether the datagram answers a DNS or LLMNR query.
pub(super) fn is_answer(payload: &[u8], flow: &Flow) -> bool {
    let is_of_server = matches!(flow.source_port, 53 | 5355) && flow.target_port != flow.source_port;
    flow.protocol == protocol::UDP && is_of_server && protocols::dns::is_response(payload)
}

pub(super) fn datagram(app: App, flow: &Flow, payload: &[u8], wire_len: u32, to_server: bool, to: &mut Transactions) {
    match app {
        App::Dns | App::Llmnr => dns::datagram(app, flow, payload, wire_len, to_server, to),
        App::Dhcp => small::dhcp(payload, to_server, to),
        App::Ntp => small::ntp(payload, to_server, to),
        app => {
            if let Some(mut talk) = talks::stream(app, flow) {
                talk.feed(Side::to_server(to_server), Run { bytes: payload, time: 0 }, 0, to);
            }
        }
    }
}
