//! Protocols of applications, above TCP and UDP: one file per protocol. Grammars are pure functions of bytes, without
//! allocation; conversations keep what one message says about the next. No I/O, and no clock. The crate `packet` reads
//! what is below.
//!
//! - [`conversation`] is the contract with filters and rules: what a protocol says, and who hears it. `dns::stream` finds the
//!   messages of DNS over TCP for both. Of [`ntp`] this crate has a grammar.
//! - Messages: [`dns`], [`tls`], [`ntp`], [`http`], [`http2`] with [`hpack`], [`quic`] and [`gquic`], [`websocket`],
//!   [`smb`], [`smtp`], and those of [`talks!`]. [`mime`] reads mails and forms. [`fingerprint`] names programs by
//!   their TLS hellos, [`x509`] reads certificates, in the encoding [`der`].
//! - [`app`] names the protocols, [`probe`] tells by the [`first`] bytes which one a flow speaks.
//! - [`text_lines`] and [`prefixed`] split streams into lines and messages, [`reply`] reads lines of replies, [`carry`] counts
//!   what is kept.
//!
//! Any input gives a result or an error value. No code here panics, loops without bound, or lets its input decide how
//! much to allocate.

#![forbid(unsafe_code)]

/// The protocols whose conversations are a filter and a part of rules as they stand: module, and variant of [`app::App`].
/// Calls the macro `$then` with them, behind what is in braces.
#[macro_export]
macro_rules! talks {
    ($then:ident { $($with:tt)* }) => {
        $then! {
            $($with)*;
            dcerpc Dcerpc
            ftp Ftp
            ike Ike
            imap Imap
            irc Irc
            krb5 Krb5
            mqtt Mqtt
            mysql Mysql
            pop3 Pop3
            rdp Rdp
            rfb Rfb
            sip Sip
            snmp Snmp
            ssh Ssh
            tftp Tftp
        }
    };
}

/// Declares their modules and lists them.
macro_rules! modules {
    (; $($module:ident $app:ident)*) => {
        $(pub mod $module;)*

        /// Their protocols.
        pub const TALKS: &[conversation::Protocol] =
            &[$(<$module::Conversation as conversation::Talk>::PROTOCOL),*];
    };
}

talks! { modules {} }

pub mod app;
pub mod carry;
pub mod conversation;
pub mod der;
pub mod dns;
pub mod fingerprint;
pub mod first;
pub mod fit;
pub mod gquic;
pub mod how;
pub mod hpack;
pub mod http;
pub mod http2;
pub mod mime;
pub mod ntp;
pub mod prefixed;
pub mod probe;
pub mod proxy;
pub mod quic;
pub mod reply;
pub mod smb;
pub mod smtp;
pub mod text_lines;
pub mod tls;
pub mod websocket;
pub mod x509;
