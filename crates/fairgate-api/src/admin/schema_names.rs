//! Schemas of names that several bodies contain, for the OpenAPI document.

use utoipa::ToSchema;

/// Name of a model, as clients send it.
#[derive(ToSchema)]
#[schema(as = ModelName, value_type = String, pattern = "^[!-~]{1,256}$")]
#[allow(dead_code, reason = "only its schema is used")]
pub struct ModelNameSchema(String);

/// Name of a taint of workers.
#[derive(ToSchema)]
#[schema(as = TaintName, value_type = String, pattern = "^[!-~]{1,128}$")]
#[allow(dead_code, reason = "only its schema is used")]
pub struct TaintNameSchema(String);

/// Name of a worker, as in the configuration.
#[derive(ToSchema)]
#[schema(as = WorkerName, value_type = String, pattern = "^[!-~]{1,128}$")]
#[allow(dead_code, reason = "only its schema is used")]
pub struct WorkerNameSchema(String);

/// Name of a policy class or family.
#[derive(ToSchema)]
#[schema(as = ClassName, value_type = String, pattern = "^[!-~]{1,128}$")]
#[allow(dead_code, reason = "only its schema is used")]
pub struct ClassNameSchema(String);
