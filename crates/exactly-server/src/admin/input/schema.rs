//! The same limits as JSON Schema.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use super::{Actor, Base64, Count, HexBytes, Instant, KeyText, OUTCOME_MAX, OperationName, Text, Whole};

/// Text without control characters.
const TEXT: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";
/// Visible ASCII without spaces.
const NAME: &str = "^[!-~]+$";
/// Visible ASCII and spaces.
const KEY: &str = "^[ -~]+$";
const ACTOR: &str = "^[A-Za-z0-9._@+-]+$";
/// Padded, and with nothing in the bits that are left over: one text for each sequence of bytes.
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

fn text(pattern: &str, length_max: usize) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(pattern))
        .min_length(Some(1))
        .max_length(Some(length_max))
}

fn number(min: u64, max: u64) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(min))
        .maximum(Some(max))
        .build()
}

impl<const MAX: usize> PartialSchema for Text<MAX> {
    fn schema() -> RefOr<Schema> {
        text(TEXT, MAX).into()
    }
}

impl PartialSchema for OperationName {
    fn schema() -> RefOr<Schema> {
        text(NAME, 255).into()
    }
}

impl PartialSchema for KeyText {
    fn schema() -> RefOr<Schema> {
        text(KEY, 255).into()
    }
}

impl PartialSchema for Actor {
    fn schema() -> RefOr<Schema> {
        text(ACTOR, 64).into()
    }
}

impl<const N: usize> PartialSchema for HexBytes<N> {
    fn schema() -> RefOr<Schema> {
        let pattern = format!("^[0-9a-fA-F]{{{}}}$", 2 * N);
        text(&pattern, 2 * N).min_length(Some(2 * N)).into()
    }
}

impl PartialSchema for Base64 {
    fn schema() -> RefOr<Schema> {
        text(BASE64, OUTCOME_MAX.div_ceil(3) * 4)
            .min_length(None)
            .content_encoding("base64")
            .into()
    }
}

impl PartialSchema for Instant {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}

impl<const MIN: u64, const MAX: u64> PartialSchema for Whole<MIN, MAX> {
    fn schema() -> RefOr<Schema> {
        number(MIN, MAX).into()
    }
}

impl<const MAX: u32> PartialSchema for Count<MAX> {
    fn schema() -> RefOr<Schema> {
        number(1, u64::from(MAX)).into()
    }
}

impl<const MAX: usize> ToSchema for Text<MAX> {}
impl ToSchema for OperationName {}
impl ToSchema for KeyText {}
impl ToSchema for Actor {}
impl<const N: usize> ToSchema for HexBytes<N> {}
impl ToSchema for Base64 {}
impl ToSchema for Instant {}
impl<const MIN: u64, const MAX: u64> ToSchema for Whole<MIN, MAX> {}
impl<const MAX: u32> ToSchema for Count<MAX> {}
