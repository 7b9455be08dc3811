//! Detects the application of a flow, and runs its parser. The first bytes of each side decide; ports decide only
//! between protocols that look alike.

use super::http::{Http, HttpShared, Upgrade};
use super::transactions::Transactions;
use super::{dcerpc, dns, ftp, http2, mqtt, rfb, sip, small, smb, smtp, ssh, tls, websocket};
use base::limits::RULES_EARLY_BYTES;
use filter::prelude::*;
use packet::Flow;
use packet::frame::protocol;
use rules::names::{App, Buffer};

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
    Ssh(Box<ssh::Stream>),
    Smtp(Box<smtp::Stream>),
    Ftp(Box<ftp::Stream>),
    /// A file of FTP, with its transaction.
    FtpData(u64),
    Sip(Box<sip::Stream>),
    Mqtt(Box<mqtt::Stream>),
    Rfb(Box<rfb::Stream>),
    Krb5(Box<small::Krb5>),
    /// An application without a parser.
    Other,
}

/// What a side sent before the application was detected.
#[derive(Default)]
pub(super) struct Prefix {
    bytes: Vec<u8>,
    /// Number of bytes behind them, which were not kept.
    missed: u64,
}

impl Prefix {
    /// Keeps bytes up to the limit.
    fn add(&mut self, bytes: &[u8], to_server: bool) {
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
    }

    /// The bytes that decide.
    fn front(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(PREFIX_BYTES)]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Is(App),
    /// More bytes may decide.
    More,
    No,
}

impl Application {
    pub fn new() -> Application {
        Application::Fresh(Default::default())
    }

    /// Has detection ended?
    pub fn is_known(&self) -> bool {
        !matches!(self, Application::Fresh(_))
    }

    /// Is no byte known yet?
    pub fn is_new(&self) -> bool {
        matches!(self, Application::Fresh(prefixes) if prefixes.iter().all(|prefix| prefix.bytes.is_empty()))
    }

    /// Takes the FTP data connections announced since the last call.
    pub fn announced(&mut self) -> impl Iterator<Item = ftp::Announced> {
        let ftp = if let Application::Ftp(ftp) = self { Some(ftp) } else { None };
        ftp.into_iter().flat_map(|ftp| ftp.announced.drain(..))
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
            let (had, missed) = (prefixes[side].bytes.len(), prefixes[side].missed);
            prefixes[side].add(cx.rings.bytes(block), side == 0);
            let app = match says(prefixes[side].front(), side == 0, flow) {
                Says::Is(app) => app,
                Says::No if !prefixes[1 - side].bytes.is_empty() || block.has(Flags::LAST) => {
                    // The other side had its chance to show the application.
                    App::Unknown
                }
                Says::No | Says::More => {
                    // A long greeting decides nothing: its parser may still identify the application.
                    if prefixes.iter().all(|prefix| prefix.bytes.len() >= PREFIX_BYTES) {
                        odd.push("applayer_proto_detection_skipped");
                        *self = Application::Other;
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
            let other = &prefixes[1 - side];
            for (number, prefix, missed) in
                [(1 - side, &other.bytes[..], other.missed), (side, &prefixes[side].bytes[..had], missed)]
            {
                if !prefix.is_empty()
                    && let Some(copy) = cx.rings.append_copy(cx.own, &[prefix])
                {
                    let mut copy = Descriptor { time: block.time, ..copy };
                    copy.class = Class::of_stream(block.class.connection(), number as u8);
                    copy.set_flags(Flags::FIRST);
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
            let mut block = *block;
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
        match self {
            Application::Http(http) => {
                if let Some((offset, upgrade)) = http.feed(block, shared, cx, to) {
                    return self.upgrade(block, offset, upgrade, flow, shared, cx, to, odd);
                }
            }
            Application::Http2(http2) => {
                let before = http2.is_dns;
                http2.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to);
                return (http2.is_dns && !before).then_some(App::Doh2);
            }
            Application::WebSocket(socket) => socket.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Dcerpc(calls) => {
                calls.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to);
                to.reader_bytes = calls.kept_bytes();
            }
            Application::Smb(smb) => smb.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Dns(dns) => dns.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Tls(tls) => tls.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Ssh(ssh) => ssh.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Smtp(smtp) => {
                smtp.feed(cx.rings.bytes(block), to_server, block.gap(), to);
                if std::mem::take(&mut smtp.is_no_tls) {
                    odd.push("applayer_no_tls_after_starttls");
                }
                if block.has(Flags::LAST) && to_server {
                    smtp.end(to);
                }
            }
            Application::Ftp(ftp) => ftp.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::FtpData(id) => {
                to.append_body(*id, Buffer::FILE_DATA, to_server, cx.rings.bytes(block));
                if block.has(Flags::LAST) {
                    to.complete(*id, to_server);
                }
            }
            Application::Mqtt(mqtt) => mqtt.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Rfb(rfb) => rfb.feed(cx.rings.bytes(block), to_server, to),
            Application::Krb5(krb5) => krb5.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Sip(sip) => sip.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
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
        upgrade: Upgrade,
        flow: &Flow,
        shared: &mut HttpShared,
        cx: &mut Context<'_>,
        to: &mut Transactions,
        odd: &mut Vec<&'static str>,
    ) -> Option<App> {
        let app = match upgrade {
            Upgrade::WebSocket => App::WebSocket,
            Upgrade::Http2 => App::Http2,
            Upgrade::Unknown | Upgrade::Other => App::Unknown,
        };
        // Detect what CONNECT tunnels. The recursion ends: the tunnelled connection has no answered CONNECT yet.
        let new = match (&*self, upgrade) {
            (_, Upgrade::Unknown) => Application::new(),
            (Application::Http(http), Upgrade::Http2) => {
                let request = http.upgraded().and_then(|id| to.find(id)).cloned();
                Application::Http2(Box::new(http2::Connection::upgraded(request.as_ref(), to)))
            }
            _ => Application::of(app, flow),
        };
        std::mem::replace(self, new).close(block.class, shared, cx);
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
            App::Dcerpc => Application::Dcerpc(Box::new(dcerpc::Calls::new(App::Dcerpc))),
            App::Dns | App::Llmnr => Application::Dns(dns::Stream::new(app)),
            App::Tls => Application::Tls(Box::default()),
            App::Ssh => Application::Ssh(Box::default()),
            App::Smtp => Application::Smtp(Box::default()),
            App::Ftp => Application::Ftp(Box::new(ftp::Stream::new(flow.source, flow.target))),
            App::Sip => Application::Sip(Box::default()),
            App::Mqtt => Application::Mqtt(Box::default()),
            App::Rfb => Application::Rfb(Box::default()),
            App::Krb5 => Application::Krb5(Box::default()),
            _ => Application::Other,
        }
    }

    /// Memory that peers control, in bytes.
    pub fn kept_bytes(&self) -> usize {
        match self {
            Application::Fresh(prefixes) => prefixes.iter().map(|prefix| prefix.bytes.capacity()).sum(),
            Application::Http(http) => http.kept_bytes(),
            Application::Dns(dns) => dns.kept_bytes(),
            Application::Tls(tls) => tls.kept_bytes(),
            Application::Ssh(ssh) => ssh.kept_bytes(),
            Application::Smtp(smtp) => smtp.kept_bytes(),
            Application::Ftp(ftp) => ftp.kept_bytes(),
            Application::Sip(sip) => sip.kept_bytes(),
            Application::Mqtt(mqtt) => mqtt.kept_bytes(),
            Application::Rfb(rfb) => rfb.kept_bytes(),
            Application::Krb5(krb5) => krb5.kept_bytes(),
            // These report their bytes in `Transactions::reader_bytes`.
            Application::Http2(_) | Application::WebSocket(_) | Application::Dcerpc(_) | Application::Smb(_) => 0,
            Application::FtpData(_) | Application::Other => 0,
        }
    }

    pub fn close(self, class: Class, shared: &mut HttpShared, cx: &mut Context<'_>) {
        if let Application::Http(http) = self {
            http.close(class, shared, cx);
        }
    }
}

const METHODS: &[&[u8]] = &[
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"TRACE ",
    b"CONNECT ",
    b"PATCH ",
    b"PROPFIND ",
    b"SEARCH ",
    b"MKCOL ",
    b"COPY ",
    b"MOVE ",
    b"LOCK ",
    b"UNLOCK ",
    b"GET\t",
    b"POST\t",
    b"REPORT ",
    b"MERGE ",
    b"LINK ",
    b"UNLINK ",
    b"PURGE ",
    b"DEBUG ",
    b"RPC_IN_DATA ",
    b"BCOPY ",
    b"PROPPATCH ",
];

/// Do the bytes begin with one of the words? `More`: too few bytes to tell.
fn begins(bytes: &[u8], words: &[&[u8]], nocase: bool) -> Says {
    let mut says = Says::No;
    for word in words {
        let len = word.len().min(bytes.len());
        let same = if nocase { word[..len].eq_ignore_ascii_case(&bytes[..len]) } else { word[..len] == bytes[..len] };
        if same {
            if len == word.len() {
                return Says::Is(App::Unknown);
            }
            says = Says::More;
        }
    }
    says
}

/// Is it a TLS handshake record with a hello?
fn begins_tls(bytes: &[u8]) -> Says {
    let fits = |at: usize, fits: &dyn Fn(u8) -> bool| bytes.get(at).is_none_or(|byte| fits(*byte));
    let header = fits(0, &|byte| byte == 22) && fits(1, &|byte| byte == 3) && fits(2, &|byte| byte <= 4);
    match header && fits(5, &|byte| matches!(byte, 1 | 2)) {
        false => Says::No,
        true if bytes.len() < 6 => Says::More,
        true => Says::Is(App::Tls),
    }
}

fn says(bytes: &[u8], to_server: bool, flow: &Flow) -> Says {
    let sip = sip::begins(bytes);
    // HTTP may have the same method as SIP.
    let mut result = if sip == Says::More { Says::No } else { sip };
    let mut try_one = |app: App, says: Says| match (says, result) {
        (Says::Is(_), Says::No | Says::More) => result = Says::Is(app),
        (Says::More, Says::No) => result = Says::More,
        _ => {}
    };
    let port = |port: u16| flow.target_port == port || flow.source_port == port;
    if to_server {
        // Servers ignore empty lines before a request (RFC 9112, 2.2).
        let empty = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        try_one(App::Http1, if empty == bytes.len() { Says::More } else { begins(&bytes[empty..], METHODS, false) });
    } else {
        try_one(App::Http1, begins(bytes, &[b"HTTP/"], false));
    }
    if to_server {
        try_one(App::Http2, begins(bytes, &[protocols::http2::PREFACE], false));
    } else if http2::is_settings(bytes) {
        try_one(App::Http2, Says::Is(App::Http2));
    }
    try_one(App::Dcerpc, dcerpc::begins_stream(bytes));
    try_one(App::Smb, smb::begins_stream(bytes, port(139)));
    try_one(App::Tls, begins_tls(bytes));
    try_one(App::Ssh, begins(bytes, &[b"SSH-"], false));
    if to_server {
        try_one(App::Smtp, begins(bytes, &[b"EHLO", b"HELO"], true));
        if port(25) || port(587) {
            try_one(App::Smtp, begins(bytes, &[b"QUIT", b"MAIL ", b"RSET", b"NOOP", b"HELP"], true));
        }
        if port(21) {
            try_one(App::Ftp, begins(bytes, &[b"SYST", b"OPTS ", b"HELP", b"CLNT "], true));
        }
        let commands: &[&[u8]] = &[b"USER ", b"PASS ", b"PORT ", b"EPRT ", b"AUTH TLS", b"AUTH SSL", b"FEAT", b"PASV"];
        try_one(App::Ftp, begins(bytes, commands, true));
    }
    try_one(App::Sip, sip);
    if to_server && mqtt::is_connect(bytes) || !to_server && port(1883) && mqtt::is_answer(bytes) {
        try_one(App::Mqtt, Says::Is(App::Mqtt));
    }
    try_one(App::Rfb, begins(bytes, &[b"RFB 003."], false));
    if port(88) && bytes.get(4..).is_some_and(small::begins_krb5) {
        try_one(App::Krb5, Says::Is(App::Krb5));
    }
    for (at, app) in [(53, App::Dns), (5355, App::Llmnr)] {
        if port(at) {
            try_one(app, dns::begins_stream(app, bytes));
        }
    }
    result
}

/// The side that first bytes like these come from; 0 is the client. `None`: they do not tell.
pub(super) fn sender(bytes: &[u8]) -> Option<u8> {
    let begins_with = |words, nocase| matches!(begins(bytes, words, nocase), Says::Is(_));
    if begins_tls(bytes) == Says::Is(App::Tls) {
        return Some(bytes[5] - 1);
    }
    if begins_with(&[b"HTTP/1.", b"220 ", b"220-"], false) {
        return Some(1);
    }
    let is_request = begins_with(METHODS, false) || begins_with(&[protocols::http2::PREFACE], false);
    (is_request || begins_with(&[b"EHLO ", b"HELO "], true)).then_some(0)
}

/// One side has shown the application: returns an event if the other side shows another one, or no known one.
pub(super) fn agrees(app: App, bytes: &[u8], to_server: bool, flow: &Flow) -> Option<&'static str> {
    // Both sides of these begin with known bytes.
    let both = matches!(app, App::Http1 | App::Tls | App::Ssh | App::Sip | App::Rfb);
    if !both || bytes.is_empty() {
        return None;
    }
    match says(bytes, to_server, flow) {
        Says::Is(other) if other != app => Some("applayer_mismatch_protocol_both_directions"),
        Says::No => Some("applayer_detect_protocol_only_one_direction"),
        _ => None,
    }
}

/// Does the datagram answer a DNS or LLMNR query?
pub(super) fn is_answer(payload: &[u8], flow: &Flow) -> bool {
    let is_of_server = matches!(flow.source_port, 53 | 5355) && flow.target_port != flow.source_port;
    flow.protocol == protocol::UDP && is_of_server && dns::is_response(payload)
}

pub(super) fn of_datagram(payload: &[u8], wire_len: u32, flow: &Flow) -> App {
    let port = |port: u16| flow.target_port == port || flow.source_port == port;
    #[cfg(feature = "quic")]
    if super::quic::begins(payload) {
        return App::Quic;
    }
    if port(53) && dns::looks_like(payload) || !port(5355) && protocols::dns::is_plausible(payload, wire_len) {
        return App::Dns;
    }
    if port(5355) && dns::looks_like(payload) {
        return App::Llmnr;
    }
    if protocols::sip::head(payload).is_some() {
        return App::Sip;
    }
    if (port(161) || port(162)) && small::is_snmp(payload) {
        return App::Snmp;
    }
    if protocols::dcerpc::Datagram::parse(payload).is_some() {
        return App::Dcerpc;
    }
    if port(88) && small::is_krb5(payload) {
        return App::Krb5;
    }
    if (port(500) || port(4500)) && protocols::ike::Message::parse(payload).is_some() {
        return App::Ike;
    }
    if (port(67) || port(68)) && payload.get(236..240) == Some(&[0x63, 0x82, 0x53, 0x63]) {
        return App::Dhcp;
    }
    if port(123) && payload.len() >= 48 {
        return App::Ntp;
    }
    if flow.target_port == 69 && small::is_tftp(payload) {
        return App::Tftp;
    }
    App::Unknown
}

pub(super) fn datagram(app: App, payload: &[u8], to_server: bool, to: &mut Transactions) {
    match app {
        App::Dns | App::Llmnr => dns::message(app, payload, to_server, to),
        App::Dcerpc => dcerpc::datagram(payload, to_server, to),
        App::Ike => small::ike(payload, to_server, to),
        App::Sip => sip::datagram(payload, to_server, to),
        App::Snmp => small::snmp(payload, to_server, to),
        App::Krb5 => small::krb5(payload, to_server, to),
        App::Dhcp => small::dhcp(payload, to_server, to),
        App::Ntp => small::ntp(payload, to_server, to),
        App::Tftp if small::is_tftp(payload) => small::tftp(payload, to_server, to),
        _ => {}
    }
}
