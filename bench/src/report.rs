//! The one place that prints.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program whose output is its product")]

use serde_json::Value;

/// A line for people.
pub fn line(text: &str) {
    println!("{text}");
}

/// A line for programs.
pub fn json(value: &Value) {
    println!("{value}");
}

/// Why there is no figure.
pub fn failure(text: &str) {
    eprintln!("tidegate-bench: {text}");
}

/// A count with separators, as people read it: `1,234,567`.
pub fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if number < 0.0 {
        text.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Least, middle and greatest of some figures.
#[derive(Clone, Copy, Default)]
pub struct Range {
    /// The least.
    pub min: f64,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Range {
    /// Of `figures`; all zero where there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Range::default() };
        let upper = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[upper - 1] + sorted[upper]) / 2.0,
            _ => sorted[upper],
        };
        Range { min, median, max }
    }
}

#[cfg(test)]
mod tests {
    use super::{Range, thousands};

    #[test]
    fn counts_read_well() {
        assert_eq!(thousands(0.4), "0");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1_000.0), "1,000");
        assert_eq!(thousands(-1_234_567.0), "-1,234,567");
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(Range::of([4.0, 1.0, 3.0, 2.0]).median, 2.5);
        assert_eq!(Range::of([9.0, 1.0, 3.0]).median, 3.0);
        assert_eq!(Range::of([]).max, 0.0);
    }
}
