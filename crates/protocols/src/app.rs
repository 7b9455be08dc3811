//! The protocols of applications, by name.

/// Declares the protocols: those below, and the ones of [`talks!`](crate::talks).
macro_rules! apps {
    (; $($module:ident $app:ident)*) => {
        /// An application protocol.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum App {
            /// Not detected (yet).
            #[default]
            Unknown,
            /// HTTP/1.
            Http1,
            /// TLS.
            Tls,
            /// DNS.
            Dns,
            /// LLMNR, a variant of DNS.
            Llmnr,
            /// SMTP.
            Smtp,
            /// FTP data connections.
            FtpData,
            /// DHCP.
            Dhcp,
            /// NTP.
            Ntp,
            /// SMB.
            Smb,
            /// HTTP/2.
            Http2,
            /// QUIC.
            Quic,
            /// WebSocket.
            WebSocket,
            /// HTTP of any version: used in rules, never assigned to a flow.
            Http,
            /// DNS over HTTP/2.
            Doh2,
            $(
                #[doc = concat!("That of `", stringify!($module), "`.")]
                $app,
            )*
        }

        impl App {
            /// Its name in rules and records.
            pub const fn name(self) -> &'static str {
                match self {
                    App::Unknown => "unknown",
                    App::Http1 | App::Http => "http",
                    App::Tls => "tls",
                    App::Dns => "dns",
                    App::Llmnr => "llmnr",
                    App::Smtp => "smtp",
                    App::FtpData => "ftp-data",
                    App::Dhcp => "dhcp",
                    App::Ntp => "ntp",
                    App::Smb => "smb",
                    App::Http2 => "http2",
                    App::Quic => "quic",
                    App::WebSocket => "websocket",
                    App::Doh2 => "doh2",
                    $(App::$app => stringify!($module),)*
                }
            }

            /// Those of `talks!`.
            const TALKS: &[App] = &[$(App::$app),*];
        }
    };
}

crate::talks! { apps {} }

impl App {
    /// Whether a rule on `self` inspects flows of `one`.
    pub fn includes(self, one: App) -> bool {
        self == one
            || match self {
                App::Http => matches!(one, App::Http1 | App::Http2 | App::Doh2),
                App::Http2 | App::Dns => one == App::Doh2,
                // SMB pipes carry DCE/RPC.
                App::Dcerpc => one == App::Smb,
                _ => false,
            }
    }

    /// All protocols that `self` includes.
    pub fn members(self) -> impl Iterator<Item = App> {
        let others = [App::Http1, App::Http2, App::Doh2, App::Smb];
        others.into_iter().filter(move |one| *one != self && self.includes(*one)).chain([self])
    }

    /// The protocol with this name; `None`: unsupported.
    pub fn of_name(name: &str) -> Option<App> {
        const KNOWN: &[App] = &[
            App::Http,
            App::Http2,
            App::Doh2,
            App::WebSocket,
            App::Quic,
            App::Smb,
            App::Tls,
            App::Dns,
            App::Llmnr,
            App::Smtp,
            App::FtpData,
            App::Ntp,
            App::Dhcp,
        ];
        match name {
            "http1" => Some(App::Http1),
            "ssl" => Some(App::Tls),
            name => KNOWN.iter().chain(App::TALKS).copied().find(|app| app.name() == name),
        }
    }
}
