/** The states of a session that are nearest to its beginning. `test/long` visits all of them. */
import { describeSurvey } from "./survey.js";

describeSurvey(20_000);
