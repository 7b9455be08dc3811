//! A chart of lines as SVG: a line for each series, its name beside its end. No more than that: which lines there are, and of
//! how many points each, the caller decides.

#![forbid(unsafe_code)]

mod clock;

use std::fmt::Write;

/// One line.
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points. All numbers are positive; on [`Scale::Count`] they may be 0.
    pub points: Vec<(f64, f64)>,
}

/// How the axis along the bottom is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// By powers of two, in bytes.
    Bytes,
    /// By powers of two.
    Powers,
    /// Evenly, from 0.
    Count,
    /// By the clock, in seconds; 0 is this number of seconds after 1970, UTC.
    Clock(u64),
}

/// A chart.
pub struct Chart<'a> {
    /// What it shows.
    pub title: &'a str,
    /// What lies along the bottom.
    pub across: &'a str,
    /// How the bottom is divided.
    pub scale: Scale,
    /// What lies along the side, with its unit.
    pub up: &'a str,
    /// How the side is divided.
    pub up_scale: Scale,
    /// The lines.
    pub series: Vec<Series>,
}

/// The least size of a picture. More or longer names make it larger.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
/// From one name to the next: names of lines that end at one place stand below each other.
const NAME_HEIGHT: f64 = 14.0;
/// Room for a character of a name, and of the title: wide ones have it, most need less.
const CHARACTER_WIDTH: f64 = 7.2;
const TITLE_CHARACTER_WIDTH: f64 = 9.0;
/// A longer name or title is cut.
const NAME_CHARACTERS: usize = 100;
/// The width of the frame that lines lie in: of more points than twice this, some have the same place.
pub const FRAME_WIDTH: usize = 570;
/// Colours that people who see few of them can tell apart (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

impl Chart<'_> {
    /// The text of the picture.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points).copied();
        let across = self.scale.axis(points().map(|point| point.0));
        let up = self.up_scale.axis(points().map(|point| point.1));
        let title = cut(self.title);
        let names = self.series.iter().map(|series| series.name.chars().count().min(NAME_CHARACTERS));
        let right = LEFT + FRAME_WIDTH as f64;
        let width = (right + 12.0 + names.max().unwrap_or(0) as f64 * CHARACTER_WIDTH)
            .max(LEFT + title.chars().count() as f64 * TITLE_CHARACTER_WIDTH)
            .max(WIDTH);
        let height = (TOP + 10.0 + self.series.len() as f64 * NAME_HEIGHT).max(HEIGHT);
        let x = |value: f64| LEFT + across.fraction(value) * (right - LEFT);
        let y = |value: f64| height - BOTTOM - up.fraction(value) * (height - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
        );
        let text = |x: f64, y: f64, more: &str, words: &str| {
            let words = words.replace('&', "&amp;").replace('<', "&lt;");
            format!("<text x=\"{x:.1}\" y=\"{y:.1}\"{more}>{words}</text>\n")
        };
        svg += &text(LEFT - 55.0, 18.0, " font-size=\"15\"", &title);
        svg += &text((LEFT + right) / 2.0, height - 10.0, " text-anchor=\"middle\"", self.across);
        svg += &text(LEFT - 55.0, TOP - 14.0, "", self.up);
        for tick in across.ticks() {
            let at = x(tick);
            let _ = writeln!(svg, "<path d=\"M{at:.1} {TOP}V{:.1}\" stroke=\"#ddd\"/>", height - BOTTOM);
            svg += &text(at, height - BOTTOM + 18.0, " text-anchor=\"middle\"", &self.scale.label(tick, &across));
        }
        for tick in up.ticks() {
            let at = y(tick);
            let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>", right);
            let label = if self.up_scale == Scale::Count { short(tick) } else { number(tick) };
            svg += &text(LEFT - 6.0, at + 4.0, " text-anchor=\"end\"", &label);
        }
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let mut path = String::new();
            for (index, &(across, up)) in series.points.iter().enumerate() {
                let _ = write!(path, "{}{:.1} {:.1}", if index == 0 { "M" } else { "L" }, x(across), y(up));
            }
            // A line of one point is a dot.
            let (end, width) = if series.points.len() == 1 { ("h0", 6) } else { ("", 2) };
            let _ = writeln!(
                svg,
                "<path d=\"{path}{end}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
                 stroke-linecap=\"round\"/>"
            );
        }
        let ends = self.series.iter().zip(COLOURS.iter().cycle());
        let ends = ends.filter_map(|(series, colour)| Some((y(series.points.last()?.1) + 4.0, colour, &series.name)));
        let mut names: Vec<_> = ends.collect();
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        // The last stands where its line ends or higher, and the first not above the frame, so that all stay in the picture.
        let mut below = height - 4.0;
        for (at, ..) in names.iter_mut().rev() {
            *at = at.min(below);
            below = *at - NAME_HEIGHT;
        }
        let mut above = TOP;
        for (at, ..) in &mut names {
            *at = at.max(above);
            above = *at + NAME_HEIGHT;
        }
        for (up, colour, name) in names {
            svg += &text(right + 6.0, up, &format!(" fill=\"{colour}\""), &cut(name));
        }
        svg + "</svg>\n"
    }
}

/// A name, or its beginning.
fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARACTERS) {
        None => name.to_string(),
        Some(_) => name.chars().take(NAME_CHARACTERS - 1).chain(['…']).collect(),
    }
}

/// Steps of an axis, at most.
const TICKS: f64 = 12.0;

/// Steps of an axis by the clock, at most: its labels are longer.
const CLOCK_TICKS: f64 = 8.0;

/// The step of an even axis up to this: 1, 2 or 5 times a power of ten.
fn even_step(high: f64) -> f64 {
    let least = high / TICKS;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= least).unwrap_or(10.0);
    step * power
}

struct Axis {
    low: f64,
    high: f64,
    /// Of the powers; none where the axis is divided evenly.
    base: Option<f64>,
    /// The first tick and the step of an axis by the clock.
    clock: Option<(f64, f64)>,
}

impl Axis {
    /// From one power to another, with everything between.
    fn over(values: impl Iterator<Item = f64> + Clone, base: f64) -> Axis {
        let low = values.clone().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE).log(base).floor();
        let high = values.fold(f64::MIN_POSITIVE, f64::max).log(base).ceil().max(low + 1.0);
        Axis { low, high, base: Some(base), clock: None }
    }

    /// From 0 to the highest, and on to the next tick.
    fn even(values: impl Iterator<Item = f64>) -> Axis {
        let highest = values.fold(0.0, f64::max);
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let step = even_step(highest);
        Axis { low: 0.0, high: (highest / step).ceil() * step, base: None, clock: None }
    }

    /// From 0 to the highest, with ticks at whole steps of the clock.
    fn by_clock(values: impl Iterator<Item = f64>, zero: u64) -> Axis {
        let high = values.fold(1.0, f64::max);
        let step = clock::step(high / CLOCK_TICKS);
        let first = (zero.next_multiple_of(step) - zero) as f64;
        Axis { low: 0.0, high, base: None, clock: Some((first, step as f64)) }
    }

    fn fraction(&self, value: f64) -> f64 {
        let place = self.base.map_or(value, |base| value.log(base));
        (place - self.low) / (self.high - self.low)
    }

    /// At most a dozen.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (first, step) = match (self.base, self.clock) {
            (_, Some(clock)) => clock,
            (Some(_), None) => (self.low, ((self.high - self.low) / TICKS).ceil().max(1.0)),
            (None, None) => (self.low, even_step(self.high)),
        };
        let count = ((self.high - first) / step + 1e-6).floor() as i32;
        (0..=count).map(move |index| {
            let place = first + f64::from(index) * step;
            self.base.map_or(place, |base| base.powf(place))
        })
    }
}

impl Scale {
    fn axis(self, values: impl Iterator<Item = f64> + Clone) -> Axis {
        match self {
            Scale::Count => Axis::even(values),
            Scale::Bytes | Scale::Powers => Axis::over(values, 2.0),
            Scale::Clock(zero) => Axis::by_clock(values, zero),
        }
    }

    fn label(self, value: f64, axis: &Axis) -> String {
        match self {
            Scale::Bytes => size(value),
            Scale::Powers => format!("{value}"),
            Scale::Count => short(value),
            Scale::Clock(zero) => clock::label(zero + value.round() as u64, axis.clock.map_or(0.0, |(_, step)| step)),
        }
    }
}

fn size(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= f64::from(1 << 20) => format!("{} MiB", bytes / f64::from(1 << 20)),
        bytes if bytes >= 1024.0 => format!("{} KiB", bytes / 1024.0),
        bytes => format!("{bytes} B"),
    }
}

/// A number of an even axis: `0.25`, `1500`, `20k`, `1.4M`.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e13 => return format!("{value:e}"),
        value if value >= 1e9 => (value / 1e9, "G"),
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e4 => (value / 1e3, "k"),
        value => (value, ""),
    };
    // Digits behind the point that say something: steps are not finer.
    let text = if value >= 1e-9 || value == 0.0 { format!("{value:.9}") } else { return format!("{value:e}") };
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn number(value: f64) -> String {
    if value >= 1.0 || value == 0.0 { format!("{value:.0}") } else { format!("1/{:.0}", 1.0 / value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_axes() {
        let check = |high: f64, expected: &[&str]| {
            let axis = Axis::even([high].into_iter());
            assert_eq!(axis.ticks().map(short).collect::<Vec<_>>(), expected, "{high}");
        };
        check(16.0, &["0", "2", "4", "6", "8", "10", "12", "14", "16"]);
        check(0.0, &["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"]);
        check(
            0.23,
            &["0", "0.02", "0.04", "0.06", "0.08", "0.1", "0.12", "0.14", "0.16", "0.18", "0.2", "0.22", "0.24"],
        );
        check(123_456.0, &["0", "20k", "40k", "60k", "80k", "100k", "120k", "140k"]);
    }

    #[test]
    fn millions_are_said_as_such() {
        let rows = [(1500.0, "1500"), (20e3, "20k"), (999e3, "999k"), (1.4e6, "1.4M"), (2e9, "2G")];
        rows.into_iter().for_each(|(value, expected)| assert_eq!(short(value), expected));
    }

    #[test]
    fn names_are_whole_and_every_line_has_one() {
        let series = |number: usize| Series { name: format!("{number}-{}", "x".repeat(40)), points: vec![(0.0, 1.0)] };
        let chart = Chart {
            title: "",
            across: "",
            scale: Scale::Count,
            up: "",
            up_scale: Scale::Count,
            series: (0..50).map(series).collect(),
        };
        let svg = chart.svg();
        let size = svg.split_once("viewBox=\"0 0 ").unwrap().1.split_once('"').unwrap().0;
        let (width, height) = size.split_once(' ').map(|(w, h)| (w.parse::<f64>(), h.parse::<f64>())).unwrap();
        assert!(width.unwrap() > LEFT + FRAME_WIDTH as f64 + 42.0 * 7.0, "{size}");
        let names: Vec<&str> = svg.lines().filter(|line| line.ends_with("xxx</text>")).collect();
        let at = |line: &&str| line.split_once(" y=\"").unwrap().1.split_once('"').unwrap().0.parse::<f64>().unwrap();
        let places: Vec<f64> = names.iter().map(at).collect();
        assert!(names.len() == 50 && places.iter().all(|at| (0.0..height.clone().unwrap()).contains(at)), "{places:?}");
    }

    #[test]
    fn names_of_lines_that_end_at_one_place_stand_below_each_other() {
        let series = |name: &str| Series { name: name.into(), points: vec![(0.0, 0.0), (1.0, 0.0)] };
        let chart = Chart {
            title: "",
            across: "",
            scale: Scale::Count,
            up: "",
            up_scale: Scale::Count,
            series: vec![series("one"), series("two"), series("three")],
        };
        let svg = chart.svg();
        let at = |name: &str| {
            let line = svg.lines().find(|line| line.contains(&format!(">{name}<"))).unwrap();
            line.split_once(" y=\"").unwrap().1.split_once('"').unwrap().0.parse::<f64>().unwrap()
        };
        assert!(at("one") + NAME_HEIGHT <= at("two") && at("two") + NAME_HEIGHT <= at("three"), "{svg}");
        assert_eq!(at("three"), HEIGHT - BOTTOM + 4.0);
    }

    #[test]
    fn a_chart_has_its_lines_within_its_frame() {
        let series = |name: &str, points: &[(f64, f64)]| Series { name: name.into(), points: points.to_vec() };
        let chart = Chart {
            title: "a < b",
            across: "bytes",
            scale: Scale::Bytes,
            up: "GB/s",
            up_scale: Scale::Powers,
            series: vec![series("one", &[(64.0, 0.3), (4096.0, 12.0)]), series("two", &[(64.0, 1.0)])],
        };
        let svg = chart.svg();
        assert!(svg.contains("a &lt; b") && svg.contains(">4 KiB<") && svg.contains(">1/4<") && svg.contains(">16<"));
        assert_eq!(svg.matches("stroke-width").count(), 2);
        // The first point is the smallest: at the left edge.
        assert!(svg.contains(&format!("M{LEFT:.1} ")), "{svg}");
        let counted = Chart {
            across: "filters",
            scale: Scale::Count,
            series: vec![series("one", &[(0.0, 1.0), (16.0, 2.0)])],
            ..chart
        };
        let svg = counted.svg();
        // An even axis has 0 at its left edge, and no bytes.
        assert!(svg.contains(&format!("M{LEFT:.1} ")) && svg.contains(">0<") && svg.contains(">16<"), "{svg}");
        assert!(!svg.contains(" B<"), "{svg}");
        let flat = Chart { up_scale: Scale::Count, series: vec![series("one", &[(0.0, 0.0), (1.0, 9.0)])], ..counted };
        // It begins in the corner.
        assert!(flat.svg().contains(&format!("M{LEFT:.1} {:.1}L", HEIGHT - BOTTOM)), "{}", flat.svg());
    }
}
