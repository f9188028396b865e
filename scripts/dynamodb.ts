/** Writes the CloudFormation template and the IAM policy of the tables in DynamoDB. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { cloudFormation, iamPolicy } from '../src/events/dynamodb/tables.js';

const folder = 'docs/examples/dynamodb';
mkdirSync(folder, { recursive: true });
writeFileSync(`${folder}/cloudformation.json`, `${JSON.stringify(cloudFormation(), null, 2)}\n`);
writeFileSync(`${folder}/iam-policy.json`, `${JSON.stringify(iamPolicy(), null, 2)}\n`);
