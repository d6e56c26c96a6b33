/** All states of a session. `RECIPROC_SESSION_BOUNDS`, such as `[2,2,true,true]`, takes it further. */
import { describeSurvey } from "../session/survey.js";

describeSurvey();
