//! A chart of lines as SVG: a line for each series, its name at its end. No more than that.

#![forbid(unsafe_code)]

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

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 120.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colours that people who see few of them can tell apart (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

impl Chart<'_> {
    /// The text of the picture.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points).copied();
        let across = self.scale.axis(points().map(|point| point.0));
        let up = self.up_scale.axis(points().map(|point| point.1));
        let x = |value: f64| LEFT + across.share(value) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - up.share(value) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        let text = |x: f64, y: f64, more: &str, words: &str| {
            let words = words.replace('&', "&amp;").replace('<', "&lt;");
            format!("<text x=\"{x:.1}\" y=\"{y:.1}\"{more}>{words}</text>\n")
        };
        svg += &text(LEFT, 24.0, " font-size=\"15\"", self.title);
        svg += &text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10.0, " text-anchor=\"middle\"", self.across);
        svg += &text(LEFT - 55.0, TOP - 6.0, "", self.up);
        for tick in across.ticks() {
            let at = x(tick);
            let _ = writeln!(svg, "<path d=\"M{at:.1} {TOP}V{:.1}\" stroke=\"#ddd\"/>", HEIGHT - BOTTOM);
            svg += &text(at, HEIGHT - BOTTOM + 18.0, " text-anchor=\"middle\"", &self.scale.label(tick));
        }
        for tick in up.ticks() {
            let at = y(tick);
            let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>", WIDTH - RIGHT);
            svg += &text(LEFT - 6.0, at + 4.0, " text-anchor=\"end\"", &number(tick));
        }
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let mut path = String::new();
            for (index, &(across, up)) in series.points.iter().enumerate() {
                let _ = write!(path, "{}{:.1} {:.1}", if index == 0 { "M" } else { "L" }, x(across), y(up));
            }
            let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
            if let Some(&(across, up)) = series.points.last() {
                svg += &text(x(across) + 6.0, y(up) + 4.0, &format!(" fill=\"{colour}\""), &series.name);
            }
        }
        svg + "</svg>\n"
    }
}

struct Axis {
    low: f64,
    high: f64,
    /// Of the powers; none where the axis is divided evenly.
    base: Option<f64>,
}

impl Axis {
    /// From one power to another, with everything between.
    fn over(values: impl Iterator<Item = f64> + Clone, base: f64) -> Axis {
        let low = values.clone().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE).log(base).floor();
        let high = values.fold(f64::MIN_POSITIVE, f64::max).log(base).ceil().max(low + 1.0);
        Axis { low, high, base: Some(base) }
    }

    /// From 0 to the highest.
    fn even(values: impl Iterator<Item = f64>) -> Axis {
        Axis { low: 0.0, high: values.fold(1.0, f64::max).ceil(), base: None }
    }

    fn share(&self, value: f64) -> f64 {
        let place = self.base.map_or(value, |base| value.log(base));
        (place - self.low) / (self.high - self.low)
    }

    /// At most a dozen.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let step = ((self.high - self.low) / 12.0).ceil().max(1.0);
        let count = ((self.high - self.low) / step) as i32;
        (0..=count).map(move |index| {
            let place = self.low + f64::from(index) * step;
            self.base.map_or(place, |base| base.powf(place))
        })
    }
}

impl Scale {
    fn axis(self, values: impl Iterator<Item = f64> + Clone) -> Axis {
        match self {
            Scale::Count => Axis::even(values),
            Scale::Bytes | Scale::Powers => Axis::over(values, 2.0),
        }
    }

    fn label(self, value: f64) -> String {
        match self {
            Scale::Bytes => size(value),
            Scale::Powers | Scale::Count => format!("{value}"),
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

fn number(value: f64) -> String {
    if value >= 1.0 || value == 0.0 { format!("{value:.0}") } else { format!("1/{:.0}", 1.0 / value) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
