//! Sources of several devices: `ethernet any`, `ethernet "eth*"`. In the tree each becomes a group of sources, one for each
//! device that is there when the request begins.

use control::Registry;
use driver::link;
use filter::{DeviceAccess, Kind};
use filters::parts::glob;
use request::{Chain, Diagnostic, FilterCall, Item, Link, Par, Term, Text, Value};

/// The name that stands for all devices, as in libpcap.
const ANY: &str = "any";

/// Most devices of one name. Each has a ring.
const DEVICES_MAX: usize = 64;

/// Puts a source for each device in the place of each source that names several.
pub(super) fn name_devices(text: &mut Text, registry: &Registry) -> Result<(), Diagnostic> {
    name_those_of(text, registry, &|| {
        let links = link::list().map_err(|error| format!("the devices cannot be listed: {error}"))?;
        Ok(links.into_iter().filter(|link| link.link_type().is_some()).map(|link| link.name).collect())
    })
}

type List<'a> = &'a dyn Fn() -> Result<Vec<String>, String>;

fn name_those_of(text: &mut Text, registry: &Registry, list: List) -> Result<(), Diagnostic> {
    let mut paths = text.items.iter_mut().filter_map(|item| match item {
        Item::Path(par) => Some(par),
        Item::Let { .. } | Item::Set { .. } => None,
    });
    paths.try_for_each(|par| of_par(par, registry, list))
}

fn of_par(par: &mut Par, registry: &Registry, list: List) -> Result<(), Diagnostic> {
    let mut links = par.branches.iter_mut().flat_map(|chain| &mut chain.links);
    links.try_for_each(|link| match &mut link.term {
        Term::Group(par) => of_par(par, registry, list),
        Term::Filter(call) => {
            if let Some(group) = devices_of(call, registry, list)? {
                link.term = group;
            }
            Ok(())
        }
        Term::Ref(_) | Term::Or(_) | Term::And(_) | Term::Not(_) => Ok(()),
    })
}

/// The sources that a source stands for. `None`: it names one device.
fn devices_of(call: &FilterCall, registry: &Registry, list: List) -> Result<Option<Term>, Diagnostic> {
    let kind = registry.find(&call.name.text);
    let is_shared = |kind: &&Kind| matches!(kind.device, Some(DeviceAccess::Shared(_)));
    let Some(kind) = kind.filter(is_shared) else { return Ok(None) };
    let Some(given) = device_value(&mut call.clone()).cloned() else { return Ok(None) };
    let (pattern, part) = match given.text.split_once('@') {
        Some((pattern, part)) => (pattern, format!("@{part}")),
        None => (&*given.text, String::new()),
    };
    if pattern != ANY && !glob::is_pattern(pattern) {
        return Ok(None);
    }
    let wrong = |message: String| Diagnostic::new(message, given.span);
    if call.params.iter().any(|param| param.key.text == "mode" && param.value.text == "consume") {
        return Err(wrong(format!("`{}` names each device that it takes packets away from", kind.name))
            .with_label("may be several"));
    }
    let matching = |name: &String| pattern == ANY || glob::matches(pattern.as_bytes(), name.as_bytes());
    let names: Vec<String> = list().map_err(wrong)?.into_iter().filter(matching).collect();
    let sources = names.iter().map(|name| {
        let mut source = call.clone();
        if let Some(value) = device_value(&mut source) {
            *value = Value { span: given.span, quoted: true, ..Value::new(format!("{name}{part}")) };
        }
        source
    });
    match names.len() {
        0 => Err(wrong(format!("no device matches `{pattern}` (`streamline devices` lists them)"))),
        1 => Ok(sources.map(Term::Filter).next()),
        2..=DEVICES_MAX if call.label.is_some() => {
            Err(wrong(format!("`{pattern}` is {} devices, which cannot have one `name=`", names.len())))
        }
        2..=DEVICES_MAX => Ok(Some(Term::Group(Par { branches: sources.map(alone).collect(), span: call.span }))),
        count => Err(wrong(format!("`{pattern}` is {count} devices, more than {DEVICES_MAX}"))),
    }
}

fn alone(source: FilterCall) -> Chain {
    let span = source.span;
    Chain { lead: None, links: vec![Link { edge: None, term: Term::Filter(source) }], span }
}

/// The value that names the device.
fn device_value(call: &mut FilterCall) -> Option<&mut Value> {
    let named = call.params.iter_mut().find(|param| param.key.text == "device").map(|param| &mut param.value);
    named.or_else(|| call.main.first_mut())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: Result<&str, &str>) {
        let mut text = request::parse(source).unwrap();
        let list = || Ok(["lo", "eth0", "eth1", "tun0"].map(String::from).to_vec());
        let named = name_those_of(&mut text, &crate::registry(), &list);
        let found = named.map(|()| request::print(&text).trim_end().to_string()).map_err(|error| error.message);
        assert_eq!(found.as_deref().map_err(|error| &**error), expected, "{source}");
    }

    #[test]
    fn a_name_of_several_devices_is_a_group_of_sources() {
        let all = "{ ethernet lo + ethernet eth0 + ethernet eth1 + ethernet tun0 } | tcp";
        let rows = [
            ("ethernet eth0 | tcp", Ok("ethernet eth0 | tcp")),
            ("ethernet any | tcp", Ok(all)),
            ("ethernet device=any | tcp", Ok(&*all.replace("ethernet ", "ethernet device="))),
            ("ethernet \"eth*@0/2\" by=socket", Ok("{ ethernet eth0@0/2 by=socket + ethernet eth1@0/2 by=socket }")),
            ("ethernet tun? name=x | tcp", Ok("ethernet tun0 name=x | tcp")),
            ("ethernet eth? name=x | tcp", Err("`eth?` is 2 devices, which cannot have one `name=`")),
            ("ethernet wlan* | tcp", Err("no device matches `wlan*` (`streamline devices` lists them)")),
            (
                "ethernet any mode=consume everything=yes",
                Err("`ethernet` names each device that it takes packets away from"),
            ),
            ("pcap any | { ip + tcp }", Ok("pcap any | { ip + tcp }")),
        ];
        rows.into_iter().for_each(|(source, expected)| check(source, expected));
    }
}
