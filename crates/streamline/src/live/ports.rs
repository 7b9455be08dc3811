//! The devices that a request sends frames between within the kernel, as the kernel knows them.

use control::Graph;
use control::graph::Task;
use driver::features::XdpFeatures;
use driver::link::{self, Link};
use filter::{Lower, Params};
use std::collections::BTreeSet;

/// A device that frames come from or go out by, and what its driver can do. An old kernel does not say that.
#[derive(Clone)]
pub(super) struct Port {
    pub(super) link: Link,
    pub(super) features: Option<XdpFeatures>,
}

/// Asks the kernel about a device.
pub(super) fn ask(name: &str) -> Result<Port, String> {
    let link = found(name)?;
    let features = driver::features::xdp(link.index).ok().flatten();
    Ok(Port { link, features })
}

/// The devices that a request asks to send frames between, within the kernel.
pub(super) fn names(graph: &Graph) -> BTreeSet<String> {
    let calls = || {
        graph.ids().filter_map(|id| match &graph.node(id).task {
            Task::Filter(call) => Some(call),
            _ => None,
        })
    };
    let mut names: BTreeSet<String> = calls()
        .filter_map(|call| match call.kind.lower {
            Some(Lower::Forwards(target)) => target(&call.params).ok(),
            _ => None,
        })
        .collect();
    if !names.is_empty() {
        let sources = calls().filter(|call| call.kind.takes_away(&call.params));
        names.extend(sources.map(|call| name_of(&call.params).to_string()));
    }
    names
}

pub(super) fn name_of(params: &Params) -> &str {
    params.text("device").unwrap_or_default()
}

pub(super) fn found(name: &str) -> Result<Link, String> {
    let link = link::find(name).map_err(|error| format!("`{name}`: {error}"))?;
    link.ok_or_else(|| format!("there is no device `{name}`"))
}
