//! HTTP/1 in front of another protocol, for who reads the other one alone.

use super::shared::Shared;
use super::{Conversation, Fact, Input, Method, Question};
use crate::app::App;
use crate::conversation::{Ear, Fed, How, Id, Side};

/// A connection that may turn from HTTP/1 into another protocol, behind an upgrade or through a tunnel.
#[derive(Debug, Default)]
pub struct Upgrade {
    http: Conversation,
}

/// What a connection turns into.
#[derive(Debug)]
pub struct Turn {
    /// Where the other protocol begins in the bytes that were read.
    pub offset: usize,
    /// The other protocol; `None`: its first bytes show it.
    pub to: Option<App>,
    /// The request that asked for it.
    pub request: Request,
}

/// A request, as far as it is known.
#[derive(Debug, Default)]
pub struct Request {
    method: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
    url: Option<Vec<u8>>,
}

impl Request {
    /// The request, for the response that is in the other protocol.
    pub fn question(&self) -> Question<'_> {
        let Request { method, host, url } = self;
        let kind = method.as_deref().map(Method::of).unwrap_or_default();
        Question { number: None, kind, method: method.as_deref(), host: host.as_deref(), url: url.as_deref() }
    }
}

impl Upgrade {
    /// Reads bytes of a side; `None`: they are HTTP/1's, or nobody's. `shared` decodes nothing.
    pub fn feed(&mut self, side: Side, input: &Input<'_>, is_midstream: bool, shared: &mut Shared) -> Option<Turn> {
        let mut ear = Listener { request: Request::default(), is_midstream };
        shared.begin_turn(false);
        let fed = loop {
            match self.http.feed(side, input, shared, &mut ear) {
                Fed::Full { .. } => {}
                fed => break fed,
            }
        };
        let Fed::HandsOn { used, to } = fed else { return None };
        Some(Turn { offset: used, to, request: ear.request })
    }

    /// Nothing more comes, or the connection has turned.
    pub fn end(mut self, shared: &mut Shared) {
        let mut ear = Listener { request: Request::default(), is_midstream: false };
        [Side::Client, Side::Server].into_iter().for_each(|side| self.http.end(side, 0, shared, &mut ear));
    }
}

/// Hears the request of the newest message, which the response that turns the connection names, too.
struct Listener {
    request: Request,
    is_midstream: bool,
}

impl Ear<Fact> for Listener {
    fn begin(&mut self, _id: Id) {
        self.request = Request::default();
    }

    fn fact(&mut self, _id: Id, fact: Fact, value: &[u8]) {
        let Request { method, host, url } = &mut self.request;
        let place = match fact {
            Fact::Method => method,
            Fact::Host => host,
            Fact::Url => url,
            _ => return,
        };
        *place = Some(value.to_vec());
    }

    fn is_midstream(&self) -> bool {
        self.is_midstream
    }

    fn end(&mut self, _id: Id, _how: How) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(said: &[(Side, &str)]) -> Option<(usize, Option<App>, Option<Vec<u8>>)> {
        let (mut upgrade, mut shared) = (Upgrade::default(), Shared::new(false, u64::MAX, 1, 1 << 20));
        let mut turn = None;
        for (side, text) in said {
            let input = Input { bytes: text.as_bytes(), is_first: true, ..Input::default() };
            turn = upgrade.feed(*side, &input, false, &mut shared);
        }
        upgrade.end(&mut shared);
        assert!(shared.is_even());
        turn.map(|Turn { offset, to, request }| (offset, to, request.url))
    }

    #[test]
    fn where_another_protocol_begins() {
        let request = "POST /chat HTTP/1.1\r\nUpgrade: WebSocket\r\nContent-Length: 2\r\n\r\nok";
        let switch = "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n";
        let (client, server) = (Side::Client, Side::Server);
        let turned = turn(&[(client, request), (server, &format!("{switch}\u{1}x"))]);
        assert_eq!(turned, Some((switch.len(), Some(App::WebSocket), Some(b"/chat".to_vec()))));
        let tunnel = turn(&[(client, "CONNECT a:1 HTTP/1.1\r\n\r\n"), (server, "HTTP/1.1 200 OK\r\n\r\n")]);
        assert_eq!(tunnel, Some((19, None, Some(b"a:1".to_vec()))));
        assert_eq!(turn(&[(client, request), (server, "HTTP/1.1 200 OK\r\n\r\n")]), None);
    }
}
