//! Which application a flow speaks, and its parser. Told by what the first bytes of either side say; ports decide only between
//! protocols that look alike.

use super::http::{Http, HttpShared};
use super::transactions::Transactions;
use super::{dns, ftp, mqtt, rfb, sip, small, smtp, ssh, tls};
use filter::prelude::*;
use packet::Flow;
use packet::frame::protocol;
use rules::names::App;

/// Bytes of a side that are kept until it is clear what it speaks.
const PREFIX_BYTES: usize = 256;

/// What is known of a flow's application.
pub(super) enum Application {
    /// Not yet: the first bytes of either side.
    Fresh([Vec<u8>; 2]),
    Http(Box<Http>),
    Dns(dns::Stream),
    Tls(Box<tls::Stream>),
    Ssh(Box<ssh::Stream>),
    Smtp(Box<smtp::Stream>),
    Ftp(Box<ftp::Stream>),
    Sip(Box<sip::Stream>),
    Mqtt(Box<mqtt::Stream>),
    Rfb(Box<rfb::Stream>),
    Krb5(Box<small::Krb5>),
    /// None that is read here.
    Other,
}

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Is(App),
    /// More may show it.
    More,
    No,
}

impl Application {
    pub fn new() -> Application {
        Application::Fresh(Default::default())
    }

    /// Is it clear what it is, or that it is nothing known?
    pub fn is_known(&self) -> bool {
        !matches!(self, Application::Fresh(_))
    }

    /// Takes a block of the stream.
    pub fn feed(
        &mut self,
        block: &Descriptor,
        flow: &Flow,
        shared: &mut HttpShared,
        cx: &mut Context<'_>,
        to: &mut Transactions,
    ) -> Option<App> {
        if let Application::Fresh(prefixes) = self {
            let side = usize::from(block.class.direction());
            let bytes = cx.rings.bytes(block);
            let take = bytes.len().min(PREFIX_BYTES.saturating_sub(prefixes[side].len()));
            let had = prefixes[side].len();
            prefixes[side].extend_from_slice(&bytes[..take]);
            let app = match says(&prefixes[side], side == 0, flow) {
                Says::Is(app) => app,
                Says::No if !prefixes[1 - side].is_empty() || block.has(Flags::LAST) => {
                    // The other side may have shown it, had it been possible.
                    App::Unknown
                }
                Says::No | Says::More => {
                    // A long greeting says nothing yet: its reader may show what it is.
                    if prefixes.iter().all(|prefix| prefix.len() >= PREFIX_BYTES) {
                        *self = Application::Other;
                    }
                    return None;
                }
            };
            let prefixes = std::mem::take(prefixes);
            *self = Application::of(app);
            // What came before goes first: the other side's, then what this side had before the block under way.
            for (number, prefix) in [(1 - side, &prefixes[1 - side][..]), (side, &prefixes[side][..had])] {
                if !prefix.is_empty()
                    && let Some(copy) = cx.rings.append_copy(cx.own, &[prefix])
                {
                    let mut copy = Descriptor { time: block.time, ..copy };
                    copy.class = Class::of_stream(block.class.connection(), number as u8);
                    copy.set_flags(Flags::FIRST);
                    self.feed_known(&copy, shared, cx, to);
                }
            }
            let mut block = *block;
            if had > 0 {
                let flags = block.flags();
                block.set_flags(Flags::NONE);
                for flag in [Flags::LAST, Flags::TRUNCATED] {
                    if flags.has(flag) {
                        block.add_flags(flag);
                    }
                }
            }
            self.feed_known(&block, shared, cx, to);
            return Some(app);
        }
        self.feed_known(block, shared, cx, to);
        None
    }

    fn feed_known(&mut self, block: &Descriptor, shared: &mut HttpShared, cx: &mut Context<'_>, to: &mut Transactions) {
        let to_server = block.class.direction() == 0;
        match self {
            Application::Http(http) => http.feed(block, shared, cx, to),
            Application::Dns(dns) => dns.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Tls(tls) => tls.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Ssh(ssh) => ssh.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Smtp(smtp) => {
                smtp.feed(cx.rings.bytes(block), to_server, block.gap(), to);
                if block.has(Flags::LAST) && to_server {
                    smtp.end(to);
                }
            }
            Application::Ftp(ftp) => ftp.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Mqtt(mqtt) => mqtt.feed(cx.rings.bytes(block), to_server, to),
            Application::Rfb(rfb) => rfb.feed(cx.rings.bytes(block), to_server, to),
            Application::Krb5(krb5) => krb5.feed(cx.rings.bytes(block), to_server, to),
            Application::Sip(sip) => sip.feed(cx.rings.bytes(block), to_server, block.gap() > 0, to),
            Application::Fresh(_) | Application::Other => {}
        }
    }

    fn of(app: App) -> Application {
        match app {
            App::Http1 => Application::Http(Box::default()),
            App::Dns => Application::Dns(dns::Stream::default()),
            App::Tls => Application::Tls(Box::default()),
            App::Ssh => Application::Ssh(Box::default()),
            App::Smtp => Application::Smtp(Box::default()),
            App::Ftp => Application::Ftp(Box::default()),
            App::Sip => Application::Sip(Box::default()),
            App::Mqtt => Application::Mqtt(Box::default()),
            App::Rfb => Application::Rfb(Box::default()),
            App::Krb5 => Application::Krb5(Box::default()),
            _ => Application::Other,
        }
    }

    /// Bytes that it keeps.
    pub fn kept_bytes(&self) -> usize {
        match self {
            Application::Fresh(prefixes) => prefixes.iter().map(Vec::capacity).sum(),
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
            Application::Other => 0,
        }
    }

    /// The connection is forgotten.
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

/// Do these bytes begin with one of those words? `More` where they are too short to tell.
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

/// A record of a handshake, whose message is a hello.
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
    // A method of SIP may be one of HTTP.
    let mut result = if sip == Says::More { Says::No } else { sip };
    let mut try_one = |app: App, says: Says| match (says, result) {
        (Says::Is(_), Says::No | Says::More) => result = Says::Is(app),
        (Says::More, Says::No) => result = Says::More,
        _ => {}
    };
    let port = |port: u16| flow.target_port == port || flow.source_port == port;
    if to_server {
        // Servers read over empty lines before a request (RFC 9112, 2.2).
        let empty = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        try_one(App::Http1, if empty == bytes.len() { Says::More } else { begins(&bytes[empty..], METHODS, false) });
    } else {
        try_one(App::Http1, begins(bytes, &[b"HTTP/"], false));
    }
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
    if to_server && mqtt::is_connect(bytes) {
        try_one(App::Mqtt, Says::Is(App::Mqtt));
    }
    try_one(App::Rfb, begins(bytes, &[b"RFB 003."], false));
    if port(88) && bytes.get(4..).is_some_and(small::begins_krb5) {
        try_one(App::Krb5, Says::Is(App::Krb5));
    }
    if port(53) {
        try_one(App::Dns, dns::begins_stream(bytes));
    }
    result
}

/// Do these bytes show that who sent them is the server?
pub(super) fn is_of_server(bytes: &[u8], flow: &Flow) -> bool {
    let hello = bytes.len() > 5 && begins_tls(bytes) == Says::Is(App::Tls) && bytes[5] == 2;
    hello
        || matches!(begins(bytes, &[b"HTTP/1.", b"220 ", b"220-"], false), Says::Is(_))
        || flow.source_port == 53 && dns::begins_stream(bytes) == Says::Is(App::Dns)
}

/// Is this datagram the answer of a server of DNS, or of a host that LLMNR asked?
pub(super) fn is_answer(payload: &[u8], flow: &Flow) -> bool {
    let is_of_server = matches!(flow.source_port, 53 | 5355) && flow.target_port != flow.source_port;
    flow.protocol == protocol::UDP && is_of_server && dns::is_response(payload)
}

/// The application of a datagram.
pub(super) fn of_datagram(payload: &[u8], wire_len: u32, flow: &Flow) -> App {
    let port = |port: u16| flow.target_port == port || flow.source_port == port;
    if port(53) && dns::looks_like(payload) || !port(5355) && packet::dns::is_plausible(payload, wire_len) {
        return App::Dns;
    }
    if port(5355) && dns::looks_like(payload) {
        return App::Llmnr;
    }
    if packet::sip::head(payload).is_some() {
        return App::Sip;
    }
    if (port(161) || port(162)) && small::is_snmp(payload) {
        return App::Snmp;
    }
    if port(88) && small::is_krb5(payload) {
        return App::Krb5;
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

/// Takes a datagram of an application.
pub(super) fn datagram(app: App, payload: &[u8], to_server: bool, to: &mut Transactions) {
    match app {
        App::Dns | App::Llmnr => dns::message(app, payload, to_server, to),
        App::Sip => sip::datagram(payload, to_server, to),
        App::Snmp => small::snmp(payload, to_server, to),
        App::Krb5 => small::krb5(payload, to_server, to),
        App::Dhcp => small::dhcp(payload, to_server, to),
        App::Ntp => small::ntp(payload, to_server, to),
        App::Tftp if small::is_tftp(payload) => small::tftp(payload, to_server, to),
        _ => {}
    }
}
